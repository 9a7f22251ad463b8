// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// PortGroup is a row of table Port_Group. Its acls column is not read: a wanted
// ACL names the group.
type PortGroup struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	Name string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner       string
	ExternalIDs map[string]string
	// Ports are names of rows of Logical_Switch_Port. One that does not exist
	// is left out until it does. Nil leaves the column as it is.
	Ports *Members
}

// AddressSet is a row of table Address_Set.
type AddressSet struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	Name string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner       string
	ExternalIDs map[string]string
	// Addresses are IP addresses or prefixes. Nil leaves the column as it is.
	Addresses *Members
}

func (g PortGroup) String() string {
	return dump(nb.PortGroupTable, g.Name, map[string]any{"external_ids": withOwner(g.ExternalIDs, g.Owner), "ports": g.Ports})
}

func (a AddressSet) String() string {
	return dump(nb.AddressSetTable, a.Name, map[string]any{"external_ids": withOwner(a.ExternalIDs, a.Owner), "addresses": a.Addresses})
}

func (g PortGroup) identity() identity {
	return identity{nb.PortGroupTable, g.Name, g.UUID, g.Owner, g.ExternalIDs[NetworkKey]}
}

func (a AddressSet) identity() identity {
	return identity{nb.AddressSetTable, a.Name, a.UUID, a.Owner, a.ExternalIDs[NetworkKey]}
}

func (g PortGroup) become(uuid, owner string) PortGroup {
	g.UUID, g.Owner = uuid, owner
	return g
}

func (a AddressSet) become(uuid, owner string) AddressSet {
	a.UUID, a.Owner = uuid, owner
	return a
}

func (g PortGroup) columns(want PortGroup) columns {
	c := columns{values: libovsdb.Row{}, members: want.Ports.differ(g.Ports)}
	c.setString("name", g.Name, want.Name)
	c.mutateMap("external_ids", withOwner(g.ExternalIDs, g.Owner), withOwner(want.ExternalIDs, want.Owner))
	return c
}

func (a AddressSet) columns(want AddressSet) columns {
	c := columns{values: libovsdb.Row{}, members: want.Addresses.differ(a.Addresses)}
	c.setString("name", a.Name, want.Name)
	c.mutateMap("external_ids", withOwner(a.ExternalIDs, a.Owner), withOwner(want.ExternalIDs, want.Owner))
	return c
}

// brief is the row without its members.
func (g PortGroup) brief() string  { g.Ports = nil; return g.String() }
func (a AddressSet) brief() string { a.Addresses = nil; return a.String() }
