// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

func TestChange(t *testing.T) {
	at := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	before := dhcp.Lease{
		Addr: prefix("10.1.0.5/24"), Gateway: addr("10.1.0.1"), Routes: []dhcp.Route{{Dst: prefix("10.9.0.0/16"), Gateway: addr("10.1.0.2")}},
		DNS: []netip.Addr{addr("10.1.0.3")}, Domain: "example.org", Search: []string{"example.org"}, MTU: 1400,
		Server: addr("10.1.0.1"), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Acquired: at, Expires: at.Add(time.Hour),
	}
	const resolver = "; DNS of a running pod can't be changed"
	many := make([]dhcp.Route, 10)
	for i := range many {
		many[i] = dhcp.Route{Dst: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 0}), 24)}
	}
	for _, test := range []struct {
		name   string
		change func(*dhcp.Lease)
		reason string
		has    string
	}{
		{"nothing", func(*dhcp.Lease) {}, "", ""},
		{"times", func(l *dhcp.Lease) { l.Acquired, l.Expires = at.Add(time.Hour), at.Add(2*time.Hour) }, "", ""},
		{"an infinite lease", func(l *dhcp.Lease) { l.Expires = time.Time{} }, "", ""},
		{"an equal list", func(l *dhcp.Lease) { l.Search = append([]string{}, l.Search...) }, "", ""},
		{"address", func(l *dhcp.Lease) { l.Addr = prefix("10.1.0.6/24") }, reasonAddressChanged, "address 10.1.0.6"},
		{"mask", func(l *dhcp.Lease) { l.Addr = prefix("10.1.0.5/16") }, reasonLeaseChanged, "mask 255.255.0.0"},
		{"gateway", func(l *dhcp.Lease) { l.Gateway = addr("10.1.0.254") }, reasonLeaseChanged, "gateway 10.1.0.254"},
		{"no gateway", func(l *dhcp.Lease) { l.Gateway = netip.Addr{} }, reasonLeaseChanged, "no gateway"},
		{"next hop of a route", func(l *dhcp.Lease) { l.Routes = []dhcp.Route{{Dst: prefix("10.9.0.0/16"), Gateway: addr("10.1.0.4")}} },
			reasonLeaseChanged, "routes 10.9.0.0/16 by 10.1.0.4"},
		{"one more route", func(l *dhcp.Lease) { l.Routes = append(l.Routes[:1:1], dhcp.Route{Dst: prefix("10.8.0.0/16")}) },
			reasonLeaseChanged, "routes 10.9.0.0/16 by 10.1.0.2 and 10.8.0.0/16 on the link"},
		{"no routes", func(l *dhcp.Lease) { l.Routes = nil }, reasonLeaseChanged, "no routes"},
		{"many routes", func(l *dhcp.Lease) { l.Routes = many }, reasonLeaseChanged,
			"routes 10.9.0.0/24 on the link and 10.9.1.0/24 on the link and 10.9.2.0/24 on the link and 10.9.3.0/24 on the link" +
				" and 10.9.4.0/24 on the link and 10.9.5.0/24 on the link and 10.9.6.0/24 on the link and 10.9.7.0/24 on the link and 2 more"},
		{"MTU", func(l *dhcp.Lease) { l.MTU = 1300 }, reasonLeaseChanged, "MTU 1300"},
		{"no MTU", func(l *dhcp.Lease) { l.MTU = 0 }, reasonLeaseChanged, "no MTU"},
		{"DNS servers", func(l *dhcp.Lease) { l.DNS = []netip.Addr{addr("10.1.0.4"), addr("10.1.0.3")} },
			reasonLeaseChanged, "DNS servers 10.1.0.4 and 10.1.0.3" + resolver},
		{"DNS domain", func(l *dhcp.Lease) { l.Domain = "example.com" }, reasonLeaseChanged, "DNS domain example.com" + resolver},
		{"DNS search list", func(l *dhcp.Lease) { l.Search = []string{"a.example"} }, reasonLeaseChanged, "DNS search list a.example" + resolver},
		{"no DNS", func(l *dhcp.Lease) { l.DNS, l.Domain, l.Search = nil, "", nil },
			reasonLeaseChanged, "no DNS servers, no DNS domain, no DNS search list" + resolver},
		{"address and more", func(l *dhcp.Lease) { l.Addr, l.Gateway, l.MTU = prefix("10.2.0.6/16"), addr("10.2.0.1"), 1500 },
			reasonAddressChanged, "address 10.2.0.6, mask 255.255.0.0, gateway 10.2.0.1, MTU 1500"},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := before
			test.change(&now)
			message := ""
			if test.has != "" {
				message = "lease on network lan, from DHCP server 10.1.0.1, now has " + test.has
			}
			if gotReason, got := change("lan", before, now); gotReason != test.reason || got != message {
				t.Errorf("got %s %q, want %s %q", gotReason, got, test.reason, message)
			}
		})
	}
	other := before
	other.Server = addr("10.1.0.2")
	if reason, message := change("lan", before, other); reason != reasonLeaseChanged || message != "lease on network lan is from DHCP server 10.1.0.2 now, before from 10.1.0.1" {
		t.Errorf("of another server: %s %q", reason, message)
	}
	if reason, message := change("lan", dhcp.Lease{}, before); reason != reasonAddressChanged || !strings.HasSuffix(message, "now has address 10.1.0.5, mask 255.255.255.0") {
		t.Errorf("after a lease was lost: %s %q", reason, message)
	}
}
