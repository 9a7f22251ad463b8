// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

var plainAddrs = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func TestPodRoutes(t *testing.T) {
	everywhere := prefix("0.0.0.0/0")
	lan := func(edit func(*dhcp.Lease)) dhcp.Lease {
		l := dhcp.Lease{Addr: prefix("10.1.0.5/24"), Gateway: addr("10.1.0.1")}
		edit(&l)
		return l
	}
	static := func(dst, gateway string) dhcp.Route {
		r := dhcp.Route{Dst: prefix(dst)}
		if gateway != "" {
			r.Gateway = addr(gateway)
		}
		return r
	}
	for _, test := range []struct {
		name         string
		lease        dhcp.Lease
		defaultRoute bool
		kept         []netip.Prefix
		want         []route
	}{
		{"no gateway", lan(func(l *dhcp.Lease) { l.Gateway = netip.Addr{} }), true, nil, nil},
		{"a gateway is not asked for", lan(func(l *dhcp.Lease) {}), false, nil, nil},
		{"a gateway is asked for", lan(func(l *dhcp.Lease) {}), true, []netip.Prefix{everywhere},
			[]route{{everywhere, addr("10.1.0.1")}}},
		{"static routes come without being asked for",
			lan(func(l *dhcp.Lease) {
				l.Routes = []dhcp.Route{static("10.9.0.0/16", "10.1.0.2"), static("10.8.0.0/24", "")}
			}), false, []netip.Prefix{everywhere},
			[]route{{prefix("10.9.0.0/16"), addr("10.1.0.2")}, {prefix("10.8.0.0/24"), netip.Addr{}}}},
		{"a default route in disguise",
			lan(func(l *dhcp.Lease) {
				l.Routes = []dhcp.Route{static("0.0.0.0/2", "10.1.0.1"), static("64.0.0.0/2", "10.1.0.1"), static("128.0.0.0/2", "10.1.0.1"), static("192.0.0.0/2", "10.1.0.1")}
			}), false, nil, nil},
		{"the pod's own routes stay",
			lan(func(l *dhcp.Lease) {
				l.Routes = []dhcp.Route{static("10.96.0.0/12", "10.1.0.1"), static("10.96.0.1/32", "10.1.0.1"), static("10.0.0.0/8", "10.1.0.1")}
			}), true, []netip.Prefix{prefix("10.96.0.0/12"), everywhere},
			[]route{{prefix("10.0.0.0/8"), addr("10.1.0.1")}, {everywhere, addr("10.1.0.1")}}},
		{"what no router leads to",
			lan(func(l *dhcp.Lease) {
				l.Routes = []dhcp.Route{static("127.0.0.0/8", "10.1.0.1"), static("169.254.169.254/32", "10.1.0.1"), static("224.0.0.0/4", "10.1.0.1")}
			}), false, nil, nil},
		{"a next hop outside of the subnet", lan(func(l *dhcp.Lease) { l.Gateway = addr("172.30.0.1") }), true, nil, nil},
		{"a next hop of an address without subnet is on the link",
			dhcp.Lease{Addr: prefix("10.1.0.5/32"), Gateway: addr("10.1.0.1"), Routes: []dhcp.Route{static("10.9.0.0/16", "10.1.0.1")}}, true, nil,
			[]route{{prefix("10.1.0.1/32"), netip.Addr{}}, {prefix("10.9.0.0/16"), addr("10.1.0.1")}, {everywhere, addr("10.1.0.1")}}},
		{"but not one that the pod has a route to",
			dhcp.Lease{Addr: prefix("10.1.0.5/32"), Gateway: addr("10.96.0.1")}, true, []netip.Prefix{prefix("10.96.0.0/12")}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, podRoutes(&test.lease, test.defaultRoute, test.kept), plainAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodMTU(t *testing.T) {
	for _, test := range [][3]int{{1500, 0, 1500}, {1500, 1400, 1400}, {1400, 9000, 1400}} {
		if got := podMTU(test[0], test[1]); got != test[2] {
			t.Errorf("network %d, lease %d: got %d, want %d", test[0], test[1], got, test[2])
		}
	}
}

func TestMappedBridge(t *testing.T) {
	for _, test := range []struct {
		mappings, network, bridge string
		ok                        bool
	}{
		{"physnet:br-ex", "physnet", "br-ex", true},
		{"a:br-a, physnet:br-ex", "physnet", "br-ex", true},
		{"physnet2:br-ex", "physnet", "", false},
		{"physnet", "physnet", "", false},
		{"", "physnet", "", false},
		{"", "", "", false},
	} {
		if bridge, ok := mappedBridge(test.mappings, test.network); bridge != test.bridge || ok != test.ok {
			t.Errorf("%q in %q: got %q, %v", test.network, test.mappings, bridge, ok)
		}
	}
}
