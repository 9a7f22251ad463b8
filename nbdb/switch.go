// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Switch is a row of table Logical_Switch. Its ports column is not read, since
// it grows with the network: a wanted Port names its switch instead.
type Switch struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	Name string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner       string
	ExternalIDs map[string]string
}

func (s Switch) String() string {
	return dump(nb.LogicalSwitchTable, s.Name, map[string]any{"external_ids": s.externalIDs()})
}

func (s Switch) externalIDs() map[string]string { return withOwner(s.ExternalIDs, s.Owner) }

func (s Switch) identity() identity {
	return identity{nb.LogicalSwitchTable, s.Name, s.UUID, s.Owner, s.ExternalIDs[NetworkKey]}
}

func (s Switch) become(uuid, owner string) Switch {
	s.UUID, s.Owner = uuid, owner
	return s
}

func (s Switch) columns(want Switch) columns {
	c := columns{values: libovsdb.Row{}}
	c.setString("name", s.Name, want.Name)
	c.mutateMap("external_ids", s.externalIDs(), want.externalIDs())
	return c
}

func switchFromModel(m *nb.LogicalSwitch) Switch {
	s := Switch{UUID: m.UUID, Name: m.Name, ExternalIDs: m.ExternalIDs}
	s.Owner = takeOwner(s.ExternalIDs)
	return s
}
