// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

const (
	testKey    = "port/ns/n/ns/p"
	testSwitch = "net_ovn_localnet_switch"
	testPort   = "ns.n_ns_p"
)

func wantPort() Port {
	return Port{
		Name:         testPort,
		Switch:       testSwitch,
		Addresses:    []string{"0a:00:00:00:00:01 192.0.2.7"},
		PortSecurity: []string{"0a:00:00:00:00:01 192.0.2.7"},
		Options:      map[string]string{"requested-chassis": "n1"},
		ExternalIDs:  map[string]string{NetworkKey: "net", "pod": "true"},
	}
}

// havePort is wantPort as the database would hold it, with changes.
func havePort(change func(*Port)) Port {
	p := wantPort()
	p.UUID, p.Owner, p.Switch, p.Up = rowUUID(nb.LogicalSwitchPortTable, testPort), testKey, "", true
	if change != nil {
		change(&p)
	}
	return p
}

func TestDiffPort(t *testing.T) {
	ourSwitch := Switch{UUID: "5a000000-0000-0000-0000-000000000001", Name: testSwitch, Owner: "network/net"}
	foreign := "f0000000-0000-0000-0000-000000000001"
	tests := map[string]struct {
		have     []Port
		switches []Switch
		remove   bool
		want     string
	}{
		"new": {switches: []Switch{ourSwitch}, want: `+ Logical_Switch_Port ns.n_ns_p
  (switch) = net_ovn_localnet_switch
  addresses = "0a:00:00:00:00:01 192.0.2.7"
  external_ids:k8s.ovn.org/network = "net"
  external_ids:ovn-dhcp-ipam/owner = "port/ns/n/ns/p"
  external_ids:pod = "true"
  options:requested-chassis = "n1"
  port_security = "0a:00:00:00:00:01 192.0.2.7"
`},
		"in step":                   {have: []Port{havePort(nil)}},
		"up is not ours":            {have: []Port{havePort(func(p *Port) { p.Up = false })}},
		"unknown keys are kept":     {have: []Port{havePort(func(p *Port) { p.Options["x"], p.ExternalIDs["y"] = "1", "2" })}},
		"address is put right":      {have: []Port{havePort(func(p *Port) { p.Addresses = []string{"unknown"} })}, want: "addresses"},
		"second address goes":       {have: []Port{havePort(func(p *Port) { p.Addresses = append(p.Addresses, "unknown") })}, want: "addresses"},
		"port security is put on":   {have: []Port{havePort(func(p *Port) { p.PortSecurity = nil })}, want: "port_security"},
		"option is put right":       {have: []Port{havePort(func(p *Port) { p.Options["requested-chassis"] = "n2" })}, want: "options"},
		"external id is put back":   {have: []Port{havePort(func(p *Port) { delete(p.ExternalIDs, "pod") })}, want: "external_ids"},
		"type is put right":         {have: []Port{havePort(func(p *Port) { p.Type = "router" })}, want: "type"},
		"tag goes":                  {have: []Port{havePort(func(p *Port) { p.TagRequest = 7 })}, want: "tag_request"},
		"OVN's own DHCP goes":       {have: []Port{havePort(func(p *Port) { p.DHCPv4Options = foreign })}, want: "dhcpv4_options"},
		"renamed row is named back": {have: []Port{havePort(func(p *Port) { p.Name = "x" })}, want: "name"},
		"row without owner is adopted": {
			have:     []Port{havePort(func(p *Port) { p.Owner, p.UUID = "", foreign })},
			switches: []Switch{ourSwitch},
			want:     "external_ids",
		},
		"removed": {have: []Port{havePort(nil)}, remove: true, want: "-"},
		"row of the same group with another name is removed": {
			have: []Port{havePort(nil), havePort(func(p *Port) { p.Name, p.UUID = "x", foreign })}, want: "-",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := Rows{Ports: []Port{wantPort()}}
			if tt.remove {
				want = Rows{}
			}
			c, err := Diff(testKey, Rows{Ports: tt.have, Switches: tt.switches}, want)
			if err != nil {
				t.Fatal(err)
			}
			got := c.String()
			if len(tt.want) < 20 { // what differs, instead of a dump
				got = differs(t, c)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("change (-want +got):\n%s\n%s", d, c)
			}
		})
	}
}

// differs names the only column that a change of one row changes, or is - for
// one that removes it.
func differs(t *testing.T, c Change) string {
	t.Helper()
	if c.Empty() {
		return ""
	}
	if len(c.Ports) != 1 || len(c.Switches) != 0 || c.Ports[0].Have == nil {
		t.Fatalf("not the change of one port:\n%s", c)
	}
	e := c.Ports[0]
	if e.Want == nil {
		return "-"
	}
	if e.Want.UUID != e.Have.UUID || e.Want.Owner != testKey {
		t.Errorf("row becomes %s of %q, was %s", e.Want.UUID, e.Want.Owner, e.Have.UUID)
	}
	names := map[string]bool{}
	for column := range e.columns.values {
		names[column] = true
	}
	for _, m := range e.columns.mutations {
		names[m.Column] = true
	}
	for column := range names {
		if len(names) == 1 {
			return column
		}
	}
	t.Fatalf("columns %v differ, want one", names)
	return ""
}

func TestDiffRefuses(t *testing.T) {
	ourSwitch := Switch{UUID: "5a000000-0000-0000-0000-000000000001", Name: testSwitch, Owner: "network/net"}
	tests := map[string]struct {
		have     Rows
		conflict bool
	}{
		"another group's row": {Rows{
			Switches: []Switch{ourSwitch},
			Ports:    []Port{havePort(func(p *Port) { p.Owner = "port/ns/other/ns/p" })},
		}, true},
		"another network's row": {Rows{
			Switches: []Switch{ourSwitch},
			Ports:    []Port{havePort(func(p *Port) { p.Owner, p.ExternalIDs[NetworkKey] = "", "other" })},
		}, true},
		"no switch":             {Rows{}, false},
		"switch is not ours":    {Rows{Switches: []Switch{{UUID: ourSwitch.UUID, Name: testSwitch}}}, false},
		"adopted but no switch": {Rows{Ports: []Port{havePort(func(p *Port) { p.Owner = "" })}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Diff(testKey, tt.have, Rows{Ports: []Port{wantPort()}})
			if err == nil {
				t.Fatalf("no error, change:\n%s", c)
			}
			var conflict *ConflictError
			if errors.As(err, &conflict) != tt.conflict {
				t.Errorf("error %v: conflict is %v, want %v", err, !tt.conflict, tt.conflict)
			}
		})
	}
}

// Switches of one name can exist side by side, unlike ports.
func TestDiffSwitchOfSameName(t *testing.T) {
	ours := Switch{UUID: "00000000-0000-0000-0000-00000000000b", Name: testSwitch, Owner: "network/net", ExternalIDs: map[string]string{NetworkKey: "net"}}
	foreign := Switch{UUID: "00000000-0000-0000-0000-00000000000a", Name: testSwitch, ExternalIDs: map[string]string{NetworkKey: "other"}}
	want := Rows{Switches: []Switch{{Name: testSwitch, ExternalIDs: map[string]string{NetworkKey: "net"}}}}
	c, err := Diff("network/net", Rows{Switches: []Switch{foreign, ours}}, want)
	if err != nil || !c.Empty() {
		t.Errorf("beside our own row: change %v, error %v", c, err)
	}
	if c, err := Diff("network/net", Rows{Switches: []Switch{foreign}}, want); err == nil {
		t.Errorf("instead of our own row: no error, change:\n%s", c)
	}
}
