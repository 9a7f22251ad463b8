// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"cmp"

	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

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
	// Enabled is nil where OVN decides, which takes it for true.
	Enabled *bool
	// Up is written by OVN alone.
	Up bool
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
		"enabled":        p.Enabled,
		"up":             p.Up,
	})
}

func (p Port) externalIDs() map[string]string { return withOwner(p.ExternalIDs, p.Owner) }

func (p Port) identity() identity {
	return identity{nb.LogicalSwitchPortTable, p.Name, p.UUID, p.Owner, p.ExternalIDs[NetworkKey]}
}

func (p Port) become(uuid, owner string) Port {
	p.UUID, p.Owner = uuid, owner
	return p
}

func (p Port) place() place {
	return place{p.Switch, []column{{nb.LogicalSwitchTable, "ports"}}}
}

// moved goes by the network, since rows that were read don't name their switch:
// a port of ours is on the switch of its network.
func (p Port) moved(want Port) bool {
	return network(p.ExternalIDs) != network(want.ExternalIDs)
}

func network(ids map[string]string) string {
	return cmp.Or(ids[NetworkKey], ids[ownNetworkKey])
}

func (p Port) columns(want Port) columns {
	c := columns{values: libovsdb.Row{}}
	c.setString("name", p.Name, want.Name)
	c.setString("type", p.Type, want.Type)
	c.setStrings("addresses", p.Addresses, want.Addresses)
	c.setStrings("port_security", p.PortSecurity, want.PortSecurity)
	setOptional(&c, "tag_request", p.TagRequest, want.TagRequest)
	if p.DHCPv4Options != want.DHCPv4Options {
		c.values["dhcpv4_options"] = uuidSet()
		if want.DHCPv4Options != "" {
			c.values["dhcpv4_options"] = uuidSet(want.DHCPv4Options)
		}
	}
	if !sameBool(p.Enabled, want.Enabled) {
		c.values["enabled"] = set[bool]()
		if want.Enabled != nil {
			c.values["enabled"] = set(*want.Enabled)
		}
	}
	c.mutateMap("options", p.Options, want.Options)
	c.mutateMap("external_ids", p.externalIDs(), want.externalIDs())
	return c
}

func sameBool(a, b *bool) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func portFromModel(m *nb.LogicalSwitchPort) Port {
	p := Port{
		UUID:         m.UUID,
		Name:         m.Name,
		Type:         m.Type,
		Addresses:    m.Addresses,
		PortSecurity: m.PortSecurity,
		Options:      m.Options,
		ExternalIDs:  m.ExternalIDs,
		Enabled:      m.Enabled,
		Up:           m.Up != nil && *m.Up,
	}
	p.Owner = takeOwner(p.ExternalIDs)
	if m.TagRequest != nil {
		p.TagRequest = *m.TagRequest
	}
	if m.Dhcpv4Options != nil {
		p.DHCPv4Options = *m.Dhcpv4Options
	}
	return p
}
