// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package nbdb is the part of OVN's northbound database that this product
// writes: plain row values, the difference between the rows that are there and
// those that are wanted, and the one transaction that gets there.
//
// Rows come in groups. The key of a row's group is in its external_ids under
// OwnerKey; what belongs to a group is found through that key, so the cost of a
// change doesn't grow with the database.
package nbdb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Keys of external_ids.
const (
	// OwnerKey is on every row of ours; its value is the key of the row's group.
	OwnerKey = "ovn-dhcp-ipam/owner"
	// NetworkKey is where OVN-Kubernetes names the network of a row.
	NetworkKey = "k8s.ovn.org/network"
	// ownNetworkKey is the same where OVN-Kubernetes must not see it.
	ownNetworkKey = "ovn-dhcp-ipam/network"
)

// Rows are rows of the northbound database. The order has no meaning.
type Rows struct {
	Switches []Switch
	Ports    []Port
}

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

// Port is a row of table Logical_Switch_Port. In a wanted row, a key that
// ExternalIDs and Options don't hold is left as it is.
type Port struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	Name string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner string
	// Switch is the name of the port's switch. Rows that were read don't say.
	Switch       string
	Type         string
	Addresses    []string
	PortSecurity []string
	Options      map[string]string
	ExternalIDs  map[string]string
	// TagRequest is a VLAN id; 0 is none.
	TagRequest int
	// DHCPv4Options is the UUID of a row of DHCP_Options, "" for none.
	DHCPv4Options string
	// Up is written by OVN alone.
	Up bool
}

// Empty reports whether there is no row.
func (r Rows) Empty() bool {
	return len(r.Switches) == 0 && len(r.Ports) == 0
}

// String is a dump for logs and tests: one line for each row and column,
// sorted, without UUIDs and empty columns.
func (r Rows) String() string {
	var rows []string
	for _, s := range r.Switches {
		rows = append(rows, s.String())
	}
	for _, p := range r.Ports {
		rows = append(rows, p.String())
	}
	slices.Sort(rows)
	return strings.Join(rows, "")
}

func (s Switch) String() string {
	return dump(nb.LogicalSwitchTable, s.Name, map[string]any{"external_ids": s.externalIDs()})
}

func (p Port) String() string {
	return dump(nb.LogicalSwitchPortTable, p.Name, map[string]any{
		"(switch)":       p.Switch,
		"type":           p.Type,
		"addresses":      p.Addresses,
		"port_security":  p.PortSecurity,
		"options":        p.Options,
		"external_ids":   p.externalIDs(),
		"tag_request":    p.TagRequest,
		"dhcpv4_options": p.DHCPv4Options,
		"up":             p.Up,
	})
}

func dump(table, name string, columns map[string]any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", table, name)
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		switch v := columns[column].(type) {
		case map[string]string:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				fmt.Fprintf(&b, "  %s:%s = %q\n", column, k, v[k])
			}
		case []string:
			for _, element := range slices.Sorted(slices.Values(v)) {
				fmt.Fprintf(&b, "  %s = %q\n", column, element)
			}
		default:
			if v != "" && v != 0 && v != false {
				fmt.Fprintf(&b, "  %s = %v\n", column, v)
			}
		}
	}
	return b.String()
}

func (s Switch) externalIDs() map[string]string { return withOwner(s.ExternalIDs, s.Owner) }
func (p Port) externalIDs() map[string]string   { return withOwner(p.ExternalIDs, p.Owner) }

func withOwner(ids map[string]string, owner string) map[string]string {
	out := maps.Clone(ids)
	if owner != "" {
		if out == nil {
			out = map[string]string{}
		}
		out[OwnerKey] = owner
	}
	return out
}

// rowUUID is the UUID of a row of ours that does not exist yet: a function of
// what it is, so that whoever creates it twice is refused the second time.
func rowUUID(table, name string) string {
	space := uuid.NewSHA1(uuid.NameSpaceDNS, []byte(OwnerKey))
	return uuid.NewSHA1(space, []byte(table+" "+name)).String()
}

func switchFromModel(m *nb.LogicalSwitch) Switch {
	s := Switch{UUID: m.UUID, Name: m.Name, Owner: m.ExternalIDs[OwnerKey], ExternalIDs: m.ExternalIDs}
	delete(s.ExternalIDs, OwnerKey)
	return s
}

func portFromModel(m *nb.LogicalSwitchPort) Port {
	p := Port{
		UUID:         m.UUID,
		Name:         m.Name,
		Owner:        m.ExternalIDs[OwnerKey],
		Type:         m.Type,
		Addresses:    m.Addresses,
		PortSecurity: m.PortSecurity,
		Options:      m.Options,
		ExternalIDs:  m.ExternalIDs,
		Up:           m.Up != nil && *m.Up,
	}
	delete(p.ExternalIDs, OwnerKey)
	if m.TagRequest != nil {
		p.TagRequest = *m.TagRequest
	}
	if m.Dhcpv4Options != nil {
		p.DHCPv4Options = *m.Dhcpv4Options
	}
	return p
}
