// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

const groupKey = "policy/net/ns/p"

// groupRows are rows of all tables that can be wanted for one group, anew each
// time.
func groupRows() Rows {
	id := func(id string) map[string]string { return map[string]string{IDKey: id} }
	return Rows{
		PortGroups:  []PortGroup{{Name: "a1", ExternalIDs: id("group"), Ports: NewMembers(testPort)}},
		AddressSets: []AddressSet{{Name: "a2", ExternalIDs: id("set"), Addresses: NewMembers("192.0.2.7")}},
		ACLs: []ACL{
			{
				On: "a1", Name: "NP:ns:p:Egress:0", Direction: "from-lport", Priority: 1001, Match: "ip4.dst == {$a2} && inport == @a1",
				Action: "allow-related", Options: map[string]string{"apply-after-lb": "true"}, ExternalIDs: id("acl"),
			},
			{On: "router", Direction: "to-lport", Priority: 2000, Match: "ip", Action: "drop", ExternalIDs: map[string]string{OwnIDKey: "guard"}},
		},
		QoS: []QoS{{
			Switch: "router", Direction: "to-lport", Priority: 10010, Match: "ip4.src == {$a2}",
			Action: map[string]int{"dscp": 46}, Bandwidth: map[string]int{"rate": 1000, "burst": 100}, ExternalIDs: id("qos"),
		}},
		Switches: []Switch{{Name: "router"}}, // the name is nobody's but its table's
		Routers:  []Router{{Name: "router", Options: map[string]string{"mac_binding_age_threshold": "60"}}},
		RouterPorts: []RouterPort{{
			Name: "rp", Router: "router", MAC: "0a:00:00:00:00:01", Networks: []string{"0.0.0.1/0"}, Options: map[string]string{"o": "1"},
		}},
		RouterPolicies: []RouterPolicy{{Router: "router", Priority: 1, Match: "1", Action: "drop", ExternalIDs: map[string]string{OwnIDKey: "policy"}}},
		Ports: []Port{{
			Name: testPort, Switch: "router", Type: "router", Addresses: []string{"router"}, Options: map[string]string{"router-port": "rp"},
		}},
	}
}

// asRead are rows as the database has them for a group.
func asRead(r Rows) Rows {
	return Rows{
		Switches: readAs(r.Switches), Ports: readAs(r.Ports), PortGroups: readAs(r.PortGroups), AddressSets: readAs(r.AddressSets),
		ACLs: readAs(r.ACLs), QoS: readAs(r.QoS), Routers: readAs(r.Routers), RouterPorts: readAs(r.RouterPorts),
		RouterPolicies: readAs(r.RouterPolicies),
	}
}

func readAs[T row[T]](rows []T) []T {
	return pick(rows, func(r T) T {
		id := r.identity()
		return r.become(rowUUID(id.table, id.name), groupKey)
	})
}

// diffChanged compares groupRows with themselves after changes to what is there
// and to what is wanted.
func diffChanged(changeHave, changeWant func(*Rows)) (Change, error) {
	have, want := asRead(groupRows()), groupRows()
	if changeHave != nil {
		changeHave(&have)
	}
	if changeWant != nil {
		changeWant(&want)
	}
	return Diff(groupKey, have, want)
}

// edited are the tables, columns and members that a change touches.
func edited(c Change) string {
	lines := slices.Concat(
		editsOf(c.Switches), editsOf(c.Ports), editsOf(c.PortGroups), editsOf(c.AddressSets), editsOf(c.ACLs), editsOf(c.QoS),
		editsOf(c.Routers), editsOf(c.RouterPorts), editsOf(c.RouterPolicies),
	)
	for _, p := range c.placements {
		lines = append(lines, []string{"attach ", "detach ", "verify "}[p.action]+p.child.name)
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func editsOf[T row[T]](edits []Edit[T]) []string {
	var lines []string
	for _, e := range edits {
		switch {
		case e.Have == nil:
			lines = append(lines, "+"+(*e.Want).identity().name)
		case e.Want == nil:
			lines = append(lines, "-"+(*e.Have).identity().name)
		default:
			columns := slices.Collect(maps.Keys(e.columns.values))
			for _, m := range e.columns.mutations {
				columns = append(columns, m.Column)
			}
			added, removed := e.Members()
			slices.Sort(columns)
			line := (*e.Want).identity().table + " " + strings.Join(slices.Compact(columns), " ")
			if len(added)+len(removed) > 0 {
				line += fmt.Sprintf("members +%v -%v", added, removed)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func TestDiffTables(t *testing.T) {
	disabled, enabled := false, true
	tests := map[string]struct {
		have func(*Rows) // changes to what is there
		want func(*Rows)
		text string
	}{
		"in step": {},
		"foreign keys are kept": {have: func(r *Rows) {
			r.PortGroups[0].ExternalIDs["x"], r.ACLs[0].Options["x"], r.RouterPorts[0].Options["x"] = "1", "1", "1"
		}},
		"port group name":         {have: func(r *Rows) { r.PortGroups[0].Name = "x" }, text: "Port_Group name"},
		"port group external_ids": {have: func(r *Rows) { delete(r.PortGroups[0].ExternalIDs, IDKey) }, text: "Port_Group external_ids"},
		"port group members": {
			have: func(r *Rows) { r.PortGroups[0].Ports = NewMembers("p1", "p2") },
			want: func(r *Rows) { r.PortGroups[0].Ports = NewMembers("p2", "p3") },
			text: "Port_Group members +[p3] -[p1]",
		},
		"port group members are left alone": {
			have: func(r *Rows) { r.PortGroups[0].Ports = NewMembers("p1") },
			want: func(r *Rows) { r.PortGroups[0].Ports = nil },
		},
		"address set external_ids": {have: func(r *Rows) { r.AddressSets[0].ExternalIDs[IDKey] = "x" }, text: "Address_Set external_ids"},
		"address set members": {
			have: func(r *Rows) { r.AddressSets[0].Addresses = NewMembers() },
			text: "Address_Set members +[192.0.2.7] -[]",
		},
		"ACL name":         {have: func(r *Rows) { r.ACLs[0].Name = "" }, text: "ACL name"},
		"ACL without name": {want: func(r *Rows) { r.ACLs[0].Name = "" }, text: "ACL name"},
		"ACL direction":    {have: func(r *Rows) { r.ACLs[0].Direction = "to-lport" }, text: "ACL direction"},
		"ACL priority":     {have: func(r *Rows) { r.ACLs[0].Priority = 0 }, text: "ACL priority"},
		"ACL match":        {have: func(r *Rows) { r.ACLs[0].Match = "" }, text: "ACL match"},
		"ACL action":       {have: func(r *Rows) { r.ACLs[0].Action = "drop" }, text: "ACL action"},
		"ACL options":      {have: func(r *Rows) { r.ACLs[0].Options = nil }, text: "ACL options"},
		"ACL is on another row": {
			want: func(r *Rows) { r.ACLs[0].On = "router" },
			text: "ACL external_ids, attach acl, detach acl",
		},
		"ACL to adopt": {have: func(r *Rows) { r.ACLs[0].Owner, r.ACLs[0].On = "", "" }, text: "ACL external_ids, verify acl"},
		"ACL goes":     {want: func(r *Rows) { r.ACLs = r.ACLs[1:] }, text: "-acl, detach acl"},
		"ACL comes":    {have: func(r *Rows) { r.ACLs = r.ACLs[1:] }, text: "+acl, attach acl"},
		"ACLs go with their port group": {
			want: func(r *Rows) { r.PortGroups, r.ACLs = nil, r.ACLs[1:] },
			text: "-a1, -acl",
		},
		"QoS direction":          {have: func(r *Rows) { r.QoS[0].Direction = "from-lport" }, text: "QoS direction"},
		"QoS priority":           {have: func(r *Rows) { r.QoS[0].Priority = 1 }, text: "QoS priority"},
		"QoS match":              {have: func(r *Rows) { r.QoS[0].Match = "1" }, text: "QoS match"},
		"QoS action":             {have: func(r *Rows) { r.QoS[0].Action = nil }, text: "QoS action"},
		"QoS bandwidth":          {want: func(r *Rows) { delete(r.QoS[0].Bandwidth, "burst") }, text: "QoS bandwidth"},
		"QoS external_ids":       {have: func(r *Rows) { r.QoS[0].Switch = "" }, text: "QoS external_ids, attach qos, detach qos"},
		"router options":         {have: func(r *Rows) { r.Routers[0].Options = nil }, text: "Logical_Router options"},
		"router to adopt":        {have: func(r *Rows) { r.Routers[0].Owner = "" }, text: "Logical_Router external_ids"},
		"router port MAC":        {have: func(r *Rows) { r.RouterPorts[0].MAC = "x" }, text: "Logical_Router_Port mac"},
		"router port networks":   {have: func(r *Rows) { r.RouterPorts[0].Networks = nil }, text: "Logical_Router_Port networks"},
		"router port options":    {have: func(r *Rows) { r.RouterPorts[0].Options = nil }, text: "Logical_Router_Port options"},
		"router policy priority": {have: func(r *Rows) { r.RouterPolicies[0].Priority = 2 }, text: "Logical_Router_Policy priority"},
		"router policy match":    {have: func(r *Rows) { r.RouterPolicies[0].Match = "0" }, text: "Logical_Router_Policy match"},
		"router policy action":   {have: func(r *Rows) { r.RouterPolicies[0].Action = "allow" }, text: "Logical_Router_Policy action"},
		"router goes with what is on it": {
			want: func(r *Rows) { r.Routers, r.RouterPorts, r.RouterPolicies = nil, nil, nil },
			text: "-policy, -router, -rp",
		},
		"port is disabled":   {want: func(r *Rows) { r.Ports[0].Enabled = &disabled }, text: "Logical_Switch_Port enabled"},
		"port is enabled":    {have: func(r *Rows) { r.Ports[0].Enabled = &disabled }, want: func(r *Rows) { r.Ports[0].Enabled = &enabled }, text: "Logical_Switch_Port enabled"},
		"enabled is put off": {have: func(r *Rows) { r.Ports[0].Enabled = &disabled }, text: "Logical_Switch_Port enabled"},
		"all is new": {
			have: func(r *Rows) { *r = Rows{} },
			text: "+a1, +a2, +acl, +guard, +" + testPort + ", +policy, +qos, +router, +router, +rp, attach acl, attach guard, attach " + testPort + ", attach policy, attach qos, attach rp",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := diffChanged(tt.have, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.text, edited(c)); d != "" {
				t.Errorf("change (-want +got):\n%s\n%s", d, c)
			}
			if c.Empty() != (tt.text == "") {
				t.Errorf("change is empty: %v", c.Empty())
			}
		})
	}
}

func TestDiffTablesRefuses(t *testing.T) {
	tests := map[string]struct {
		have     func(*Rows)
		want     func(*Rows)
		conflict bool
	}{
		"port group of another group":  {have: func(r *Rows) { r.PortGroups[0].Owner = "x" }, conflict: true},
		"address set of another group": {have: func(r *Rows) { r.AddressSets[0].Owner = "x" }, conflict: true},
		"ACL of another group":         {have: func(r *Rows) { r.ACLs[0].Owner = "x" }, conflict: true},
		"QoS of another group":         {have: func(r *Rows) { r.QoS[0].Owner = "x" }, conflict: true},
		"router of another group":      {have: func(r *Rows) { r.Routers[0].Owner = "x" }, conflict: true},
		"router of another network": {have: func(r *Rows) {
			r.Routers[0].Owner, r.Routers[0].ExternalIDs = "", map[string]string{NetworkKey: "other"}
		}, conflict: true},
		"ACL without id": {want: func(r *Rows) { r.ACLs[0].ExternalIDs = nil }},
		"ACL on nothing": {want: func(r *Rows) { r.ACLs[0].On = "x" }},
		"new ACL on a group that is not ours": {
			have: func(r *Rows) { r.PortGroups[0].Owner, r.ACLs = "", nil },
			want: func(r *Rows) { r.PortGroups = nil },
		},
		"policy of a router that does not exist": {want: func(r *Rows) { r.RouterPolicies[0].Router = "x" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := diffChanged(tt.have, tt.want)
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

func TestRowsString(t *testing.T) {
	want := `ACL acl
  (on) = a1
  action = allow-related
  direction = from-lport
  external_ids:k8s.ovn.org/id = "acl"
  match = ip4.dst == {$a2} && inport == @a1
  name = NP:ns:p:Egress:0
  options:apply-after-lb = "true"
  priority = 1001
ACL guard
  (on) = router
  action = drop
  direction = to-lport
  external_ids:ovn-dhcp-ipam/id = "guard"
  match = ip
  priority = 2000
Address_Set a2
  addresses = "192.0.2.7"
  external_ids:k8s.ovn.org/id = "set"
Logical_Router router
  options:mac_binding_age_threshold = "60"
Logical_Router_Policy policy
  (router) = router
  action = drop
  external_ids:ovn-dhcp-ipam/id = "policy"
  match = 1
  priority = 1
Logical_Router_Port rp
  (router) = router
  mac = 0a:00:00:00:00:01
  networks = "0.0.0.1/0"
  options:o = "1"
Logical_Switch router
Logical_Switch_Port ns.n_ns_p
  (switch) = router
  addresses = "router"
  options:router-port = "rp"
  type = router
Port_Group a1
  external_ids:k8s.ovn.org/id = "group"
  ports = "ns.n_ns_p"
QoS qos
  (switch) = router
  action:dscp = 46
  bandwidth:burst = 100
  bandwidth:rate = 1000
  direction = to-lport
  external_ids:k8s.ovn.org/id = "qos"
  match = ip4.src == {$a2}
  priority = 10010
`
	if d := cmp.Diff(want, groupRows().String()); d != "" {
		t.Errorf("dump (-want +got):\n%s", d)
	}
}

// One operation writes a row, however many changes touch it.
func TestOperationsMerge(t *testing.T) {
	have := asRead(groupRows())
	var changes []Change
	for i := range 3 {
		key := fmt.Sprintf("qos/%d", i)
		c, err := Diff(key, have, Rows{QoS: []QoS{{Switch: "router", ExternalIDs: map[string]string{IDKey: key}}}})
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
	}
	ops, _ := operations(changes, nil)
	var mutations int
	for _, op := range ops {
		if op.Table == nb.LogicalSwitchTable {
			mutations++
		}
	}
	if len(ops) != 4 || mutations != 1 {
		t.Errorf("%d operations, %d of them on the switch, want 3 inserts and 1 mutation", len(ops), mutations)
	}
}
