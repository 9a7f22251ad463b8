// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nbdb

import "testing"

// TestRecompute changes ACLs, each time of which a switch tells, and a port, of
// which it doesn't.
func TestRecompute(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	told := func() string { return srv.nbctl(t, "get", "Logical_Switch", testSwitch, "external_ids") }
	network := networkRows()
	mustApply(t, s, "network/net", network)
	last := told()
	expect := func(what string, change bool) {
		t.Helper()
		now := told()
		if (now != last) != change {
			t.Errorf("%s: the switch has external_ids %s, before: %s", what, now, last)
		}
		last = now
	}
	policy := policyRows(NewMembers())
	mustApply(t, s, "policy/p", policy)
	expect("new ACL", true)
	policy.ACLs[0].Match = "ip4"
	mustApply(t, s, "policy/p", policy)
	expect("changed ACL", true)
	network.Ports[0].TagRequest = 7
	mustApply(t, s, "network/net", network)
	expect("changed port", false)
	mustApply(t, s, "policy/p", Rows{})
	expect("removed ACL", true)
}
