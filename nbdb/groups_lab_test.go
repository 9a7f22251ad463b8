// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nbdb

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// policyRows are a policy's, with Members that last from call to call.
func policyRows(ports *Members) Rows {
	return Rows{
		PortGroups: []PortGroup{{Name: "a1", ExternalIDs: map[string]string{IDKey: "group"}, Ports: ports}},
		ACLs: []ACL{{
			On: "a1", Name: "NP:ns:p:Egress:0", Direction: "from-lport", Priority: 1001, Match: "ip4.dst == {$a2} && inport == @a1",
			Action: "allow-related", Options: map[string]string{"apply-after-lb": "true"}, ExternalIDs: map[string]string{IDKey: "acl"},
		}},
	}
}

func setRows(addresses *Members) Rows {
	return Rows{AddressSets: []AddressSet{{Name: "a2", ExternalIDs: map[string]string{IDKey: "set"}, Addresses: addresses}}}
}

// changes are what the groups need, compared one after the other.
func changes(t testing.TB, s *Session, groups map[string]Rows) []Change {
	t.Helper()
	var out []Change
	for key, want := range groups {
		c, err := Diff(key, s.Rows(key, want), want)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func wantInStep(t testing.TB, s *Session, groups map[string]Rows) {
	t.Helper()
	for _, c := range changes(t, s, groups) {
		if !c.Empty() {
			t.Errorf("there is still to do:\n%s", c)
		}
	}
}

// members are the ports of the group a1 by name, or the addresses of the set a2.
func (s server) members(t testing.TB, table string) string {
	t.Helper()
	if table == nb.AddressSetTable {
		return s.nbctl(t, "--bare", "--columns=addresses", "list", table, "a2")
	}
	var names []string
	for _, uuid := range strings.FieldsFunc(s.nbctl(t, "get", table, "a1", "ports"), func(r rune) bool { return strings.ContainsRune("[], ", r) }) {
		names = append(names, s.nbctl(t, "get", "Logical_Switch_Port", uuid, "name"))
	}
	slices.Sort(names)
	return strings.ReplaceAll(strings.Join(names, " "), `"`, "")
}

func await(t testing.TB, told <-chan string, key string) {
	t.Helper()
	for deadline := time.After(10 * time.Second); ; {
		select {
		case got := <-told:
			if got == key {
				return
			}
		case <-deadline:
			t.Fatalf("nothing was told of %s", key)
		}
	}
}

// foreign has somebody else change what the database has of key, and waits until that is
// told and everything of the transaction is in the cache.
func foreign(t testing.TB, srv server, s *Session, told <-chan string, key string, nbctl ...string) {
	t.Helper()
	// What is told is told in order. What comes after the mark is not of what was before.
	const mark = "mark/m"
	for _, rows := range []Rows{{AddressSets: []AddressSet{{Name: "mark"}}}, {}} {
		if err := s.Apply(t.Context(), changes(t, s, map[string]Rows{mark: rows})...); err != nil {
			t.Fatal(err)
		}
		await(t, told, mark)
	}
	srv.nbctl(t, nbctl...)
	await(t, told, key)
	// Other tables may come later, but before the next answer.
	if _, err := s.session.Transact(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTablesInOneTransaction(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	mustApply(t, s, "network/net", networkRows())
	before := srv.transactions(t)
	ports, addresses := NewMembers(testPort), NewMembers("192.0.2.7", "192.0.2.8")
	groups := map[string]Rows{
		testKey:    {Ports: []Port{wantPort()}},
		"policy/p": policyRows(ports),
		"set/s":    setRows(addresses),
		"qos/q": {QoS: []QoS{{
			Switch: testSwitch, Direction: "to-lport", Priority: 10010, Match: "ip4.src == {$a2}", Action: map[string]int{"dscp": 46},
			Bandwidth: map[string]int{"rate": 1000, "burst": 100}, ExternalIDs: map[string]string{IDKey: "qos"},
		}}},
		"learner/net": {
			Routers: []Router{{Name: "r", Options: map[string]string{"mac_binding_age_threshold": "60"}}},
			RouterPorts: []RouterPort{{
				Name: "rp", Router: "r", MAC: "0a:00:00:00:00:01", Networks: []string{"0.0.0.1/0"}, Options: map[string]string{"o": "1"},
			}},
			RouterPolicies: []RouterPolicy{{
				Router: "r", Priority: 1, Match: "1", Action: "drop", ExternalIDs: map[string]string{OwnIDKey: "policy"},
			}},
			ACLs: []ACL{{
				On: testSwitch, Direction: "from-lport", Priority: 2000, Match: "ip", Action: "drop", ExternalIDs: map[string]string{OwnIDKey: "guard"},
			}},
			Ports: []Port{{
				Name: "sp", Switch: testSwitch, Type: "router", Addresses: []string{"router"}, Options: map[string]string{"router-port": "rp"},
			}},
		},
	}
	if err := s.Apply(t.Context(), changes(t, s, groups)...); err != nil {
		t.Fatal(err)
	}
	if got := srv.transactions(t) - before; got != 1 {
		t.Errorf("%d transactions, want 1", got)
	}
	wantInStep(t, s, groups)
	if got, want := srv.members(t, nb.PortGroupTable), testPort; got != want {
		t.Errorf("members of the group: %s, want %s", got, want)
	}
	if got, want := srv.members(t, nb.AddressSetTable), "192.0.2.7 192.0.2.8"; got != want {
		t.Errorf("members of the set: %s, want %s", got, want)
	}
	if got := srv.nbctl(t, "acl-list", testSwitch); !strings.Contains(got, "2000") {
		t.Errorf("ACLs of the switch: %s", got)
	}
	if got := srv.nbctl(t, "--type=port-group", "acl-list", "a1"); !strings.Contains(got, "1001") {
		t.Errorf("ACLs of the group: %s", got)
	}
	if got := srv.nbctl(t, "qos-list", testSwitch); !strings.Contains(got, "10010") || !strings.Contains(got, "rate=1000") {
		t.Errorf("QoS rules of the switch: %s", got)
	}
	if got := srv.nbctl(t, "lr-policy-list", "r"); !strings.Contains(got, "drop") {
		t.Errorf("policies of the router: %s", got)
	}
	if got := srv.nbctl(t, "lrp-list", "r"); !strings.Contains(got, "rp") {
		t.Errorf("ports of the router: %s", got)
	}

	// Another session, and a start that finds all in step, write nothing.
	before = srv.transactions(t)
	wantInStep(t, session(t, srv), map[string]Rows{
		"policy/p": policyRows(NewMembers(testPort)), "set/s": setRows(NewMembers("192.0.2.7", "192.0.2.8")), "learner/net": groups["learner/net"],
	})

	// What the rows are on stays, and what was theirs goes.
	for key := range groups {
		groups[key] = Rows{}
	}
	if err := s.Apply(t.Context(), changes(t, s, groups)...); err != nil {
		t.Fatal(err)
	}
	if got := srv.transactions(t) - before; got != 1 {
		t.Errorf("%d transactions, want 1", got)
	}
	for _, table := range []string{"ACL", "QoS", "Port_Group", "Address_Set", "Logical_Router", "Logical_Router_Port", "Logical_Router_Policy"} {
		if got := srv.nbctl(t, "list", table); got != "" {
			t.Errorf("left over in %s: %s", table, got)
		}
	}
	if keys := s.Keys(); len(keys) != 1 {
		t.Errorf("keys that are left: %v", keys)
	}
}

// Columns of rows that exist change one by one, and an ACL goes from one row to
// another.
func TestTablesChange(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	mustApply(t, s, "network/net", networkRows())
	rows := policyRows(NewMembers())
	rows.QoS = []QoS{{
		Switch: testSwitch, Direction: "to-lport", Priority: 1, Match: "1", Action: map[string]int{"dscp": 1},
		Bandwidth: map[string]int{"rate": 1, "burst": 1}, ExternalIDs: map[string]string{IDKey: "qos"},
	}}
	mustApply(t, s, "policy/p", rows)
	rows.ACLs[0].Name, rows.ACLs[0].Action, rows.ACLs[0].On = "", "drop", testSwitch
	rows.QoS[0].Bandwidth = map[string]int{"rate": 2}
	mustApply(t, s, "policy/p", rows)
	if got := srv.nbctl(t, "acl-list", testSwitch); !strings.Contains(got, "drop") {
		t.Errorf("ACLs of the switch: %s", got)
	}
	if got := srv.nbctl(t, "--type=port-group", "acl-list", "a1"); got != "" {
		t.Errorf("ACLs of the group: %s", got)
	}
	if got, want := srv.nbctl(t, "--bare", "--columns=bandwidth", "list", "QoS"), "rate=2"; got != want {
		t.Errorf("bandwidth is %s, want %s", got, want)
	}
	rows.ACLs = nil
	mustApply(t, s, "policy/p", rows)
	if got := srv.nbctl(t, "list", "ACL"); got != "" {
		t.Errorf("ACL is left: %s", got)
	}
}

func TestForeignMembersAreRepaired(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	told := make(chan string, 1000)
	s.Watch(func(key string) { told <- key })
	mustApply(t, s, "network/net", networkRows())
	mustApply(t, s, testKey, Rows{Ports: []Port{wantPort()}})
	srv.nbctl(t, "lsp-add", testSwitch, "theirs")
	groups := map[string]Rows{
		"policy/p": policyRows(NewMembers(testPort)),
		"set/s":    setRows(NewMembers("192.0.2.7", "192.0.2.8")),
	}
	repair := func(key, table, want string, nbctl ...string) {
		t.Helper()
		foreign(t, srv, s, told, key, nbctl...)
		before := srv.transactions(t)
		if err := s.Apply(t.Context(), changes(t, s, groups)...); err != nil {
			t.Fatal(err)
		}
		wantInStep(t, s, groups)
		if got := srv.members(t, table); got != want {
			t.Errorf("after %q the members are %s, want %s", nbctl, got, want)
		}
		if got := srv.transactions(t) - before; got != 1 {
			t.Errorf("after %q there were %d transactions, want 1", nbctl, got)
		}
	}
	if err := s.Apply(t.Context(), changes(t, s, groups)...); err != nil {
		t.Fatal(err)
	}
	addresses := "192.0.2.7 192.0.2.8"
	repair("set/s", nb.AddressSetTable, addresses, "remove", "Address_Set", "a2", "addresses", "192.0.2.7")
	repair("set/s", nb.AddressSetTable, addresses, "add", "Address_Set", "a2", "addresses", "192.0.2.9")
	repair("set/s", nb.AddressSetTable, addresses, "set", "Address_Set", "a2", "addresses=192.0.2.8,192.0.2.10")
	repair("set/s", nb.AddressSetTable, addresses, "clear", "Address_Set", "a2", "addresses")
	repair("set/s", nb.AddressSetTable, addresses, "destroy", "Address_Set", "a2")
	repair("policy/p", nb.PortGroupTable, testPort, "pg-set-ports", "a1", "theirs")
	repair("policy/p", nb.PortGroupTable, testPort, "pg-set-ports", "a1", "theirs", testPort)
	repair("policy/p", nb.PortGroupTable, testPort, "clear", "Port_Group", "a1", "ports")
	repair("policy/p", nb.PortGroupTable, testPort, "acl-del", "a1")
	if got := srv.nbctl(t, "--type=port-group", "acl-list", "a1"); !strings.Contains(got, "1001") {
		t.Errorf("ACLs of the group: %s", got)
	}

	// A port that somebody deletes leaves its group by itself, and comes back
	// together with its membership.
	groups[testKey] = Rows{Ports: []Port{wantPort()}}
	repair(testKey, nb.PortGroupTable, testPort, "lsp-del", testPort)
}

func TestMemberThatDoesNotExist(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	told := make(chan string, 1000)
	s.Watch(func(key string) { told <- key })
	ports := NewMembers(testPort)
	mustApply(t, s, "network/net", networkRows())
	if _, err := apply(t, s, "policy/p", policyRows(ports)); err != nil {
		t.Fatal(err)
	}
	before := srv.transactions(t)
	if _, err := apply(t, s, "policy/p", policyRows(ports)); err != nil {
		t.Fatal(err)
	}
	if got := srv.transactions(t) - before; got != 0 {
		t.Errorf("%d transactions for a member that does not exist", got)
	}
	// It exists under a UUID of somebody else's.
	foreign(t, srv, s, told, "policy/p", "lsp-add", testSwitch, testPort)
	mustApply(t, s, "policy/p", policyRows(ports))
	if got := srv.members(t, nb.PortGroupTable); got != testPort {
		t.Errorf("members: %s, want %s", got, testPort)
	}
	// A port of ours goes, and its membership with it, in one transaction.
	mustApply(t, s, testKey, Rows{Ports: []Port{wantPort()}})
	ports.Remove(testPort)
	groups := map[string]Rows{"policy/p": policyRows(ports), testKey: {}}
	if err := s.Apply(t.Context(), changes(t, s, groups)...); err != nil {
		t.Fatal(err)
	}
	wantInStep(t, s, groups)
	if got := srv.members(t, nb.PortGroupTable); got != "" {
		t.Errorf("members: %s, want none", got)
	}
}

// After a transaction that was refused the difference is still known.
func TestRefusedMembers(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	addresses := NewMembers("192.0.2.7")
	mustApply(t, s, "set/s", setRows(addresses))
	addresses.Add("192.0.2.8")
	addresses.Remove("192.0.2.7")
	refused := changes(t, s, map[string]Rows{"set/s": setRows(addresses), "set/x": {AddressSets: []AddressSet{{Name: "a9"}}}})
	srv.nbctl(t, "create", "Address_Set", "name=a9")
	if err := s.Apply(t.Context(), refused...); !errors.Is(err, ErrRefused) {
		t.Fatalf("error %v, want a refusal", err)
	}
	mustApply(t, s, "set/s", setRows(addresses))
	if got, want := srv.members(t, nb.AddressSetTable), "192.0.2.8"; got != want {
		t.Errorf("members: %s, want %s", got, want)
	}
}

func TestAdoptTables(t *testing.T) {
	srv := startServer(t)
	srv.nbctl(t, "ls-add", testSwitch, "--", "lsp-add", testSwitch, testPort, "--", "lsp-add", testSwitch, "theirs")
	srv.nbctl(t, "pg-add", "a1", testPort, "theirs", "--", "create", "Address_Set", "name=a2", "addresses=192.0.2.1,192.0.2.7")
	srv.nbctl(t, "--id=@a", "create", "ACL", "direction=from-lport", "priority=1", "match=1", "action=drop", `external_ids:"k8s.ovn.org/id"=acl`,
		"--", "add", "Port_Group", "a1", "acls", "@a")
	srv.nbctl(t, "pg-add", "theirs", "--", "--id=@a", "create", "ACL", "direction=from-lport", "priority=1", "match=1", "action=drop",
		`external_ids:"k8s.ovn.org/id"=other`, "--", "add", "Port_Group", "theirs", "acls", "@a")
	id := srv.nbctl(t, "--bare", "--columns=_uuid", "list", "Port_Group", "a1") + srv.nbctl(t, "--bare", "--columns=_uuid", "list", "ACL")
	s := session(t, srv)
	mustApply(t, s, "network/net", networkRows())
	mustApply(t, s, "policy/p", policyRows(NewMembers(testPort)))
	mustApply(t, s, "set/s", setRows(NewMembers("192.0.2.7", "192.0.2.8")))
	if got := srv.nbctl(t, "--bare", "--columns=_uuid", "list", "Port_Group", "a1") + srv.nbctl(t, "--bare", "--columns=_uuid", "list", "ACL"); got != id {
		t.Errorf("rows are %s, were %s", got, id)
	}
	if got := srv.members(t, nb.PortGroupTable); got != testPort {
		t.Errorf("members of the group: %s, want %s", got, testPort)
	}
	if got, want := srv.members(t, nb.AddressSetTable), "192.0.2.7 192.0.2.8"; got != want {
		t.Errorf("members of the set: %s, want %s", got, want)
	}

	var conflict *ConflictError
	if _, err := apply(t, s, "policy/other", policyRows(NewMembers())); !errors.As(err, &conflict) {
		t.Errorf("rows of another group: error %v, want a conflict", err)
	}
	// An ACL to adopt that is elsewhere is not taken from there.
	other := policyRows(nil)
	other.PortGroups[0].Name, other.ACLs[0].On, other.ACLs[0].ExternalIDs = "a5", "a5", map[string]string{IDKey: "other"}
	if _, err := apply(t, s, "policy/other", other); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "a5") {
		t.Errorf("ACL on another group: error %v, want a refusal that names a5", err)
	}
}

// The fence is an address set, but of no group.
func TestFenceIsNoGroup(t *testing.T) {
	srv := startServer(t)
	s := start(t, srv, &Fence{Name: "x", Leader: "a", Elected: elected}).next(t)
	told := make(chan string, 1000)
	s.Watch(func(key string) { told <- key })
	srv.nbctl(t, "set", "Address_Set", setName("ovn-dhcp-ipam:Fence:x"), "external_ids:theirs=1")
	mustApply(t, s, "set/s", setRows(NewMembers()))
	if got := <-told; got != "set/s" {
		t.Errorf("watch told %q first, want set/s", got)
	}
	if d := cmp.Diff([]string{"set/s"}, s.Keys()); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
}
