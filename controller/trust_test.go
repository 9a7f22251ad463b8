// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(seconds ...int) []time.Time {
		var times []time.Time
		for _, s := range seconds {
			times = append(times, now.Add(-time.Duration(s)*time.Second))
		}
		return times
	}
	usual := standing{
		own:      []netip.Addr{netip.MustParseAddr("10.1.0.50")},
		subnet:   netip.MustParsePrefix("10.1.0.50/24"),
		gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
		server:   netip.MustParseAddr("10.1.0.2"),
	}
	with := func(change func(s *standing)) standing {
		s := usual
		change(&s)
		return s
	}
	for _, test := range []struct {
		name   string
		s      standing
		ip     string
		accept bool
		reason string // part of it, "" for none
	}{
		{"another address of the subnet", usual, "10.1.0.77", true, ""},
		{"its own, for which OVN speaks too", usual, "10.1.0.50", false, ""},
		{"a probe", usual, "0.0.0.0", false, ""},
		{"IPv6", usual, "fe80::1", false, ""},
		{"multicast", usual, "224.0.0.5", false, "no host"},
		{"link local", usual, "169.254.1.1", false, "no host"},
		{"loopback", usual, "127.0.0.1", false, "no host"},
		{"before anybody had a lease", with(func(s *standing) { s.subnet = netip.Prefix{} }), "10.1.0.77", false, "subnet is not known"},
		{"another subnet", usual, "10.1.1.77", false, "outside the network's subnet, 10.1.0.0/24"},
		{"the network", usual, "10.1.0.0", false, "network or broadcast"},
		{"broadcast", usual, "10.1.0.255", false, "network or broadcast"},
		{"the last of a /31", with(func(s *standing) { s.subnet = netip.MustParsePrefix("10.1.0.76/31") }), "10.1.0.77", true, ""},
		{"the gateway", usual, "10.1.0.1", false, "gateway's"},
		{"the DHCP server", usual, "10.1.0.2", false, "DHCP server's"},
		{"a neighbour's", with(func(s *standing) { s.holder = "a/b" }), "10.1.0.77", false, "pod a/b has it"},
		{"the sixth change", with(func(s *standing) { s.changes = ago(1, 2, 3, 4, 5) }), "10.1.0.77", true, ""},
		{"the seventh change", with(func(s *standing) { s.changes = ago(1, 2, 3, 4, 5, 59) }), "10.1.0.77", false, "change 7"},
		{"the seventh in more than a minute", with(func(s *standing) { s.changes = ago(1, 2, 3, 4, 5, 60) }), "10.1.0.77", true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.s.judge(now, netip.MustParseAddr(test.ip))
			if got.accept != test.accept || (got.reason == "") != (test.reason == "") || !strings.Contains(got.reason, test.reason) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
