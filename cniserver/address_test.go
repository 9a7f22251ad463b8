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
	for _, test := range []struct {
		name         string
		lease        dhcp.Lease
		defaultRoute bool
		want         []route
	}{
		{"no gateway", dhcp.Lease{Addr: prefix("10.1.0.5/24")}, true, nil},
		{"a gateway is not asked for", dhcp.Lease{Addr: prefix("10.1.0.5/24"), Gateway: addr("10.1.0.1")}, false, nil},
		{"a gateway is asked for", dhcp.Lease{Addr: prefix("10.1.0.5/24"), Gateway: addr("10.1.0.1")}, true,
			[]route{{anywhere, addr("10.1.0.1")}}},
		{"static routes come without being asked for",
			dhcp.Lease{Addr: prefix("10.1.0.5/24"), Gateway: addr("10.1.0.1"), Routes: []dhcp.Route{{Dst: prefix("10.9.0.0/16"), Gateway: addr("10.1.0.2")}, {Dst: prefix("10.8.0.0/24")}}}, false,
			[]route{{prefix("10.9.0.0/16"), addr("10.1.0.2")}, {prefix("10.8.0.0/24"), netip.Addr{}}}},
		{"a default route in disguise",
			dhcp.Lease{Addr: prefix("10.1.0.5/24"), Routes: []dhcp.Route{{Dst: prefix("0.0.0.0/1"), Gateway: addr("10.1.0.1")}, {Dst: prefix("128.0.0.0/1"), Gateway: addr("10.1.0.1")}}}, false, nil},
		{"a gateway outside of the subnet is on the link",
			dhcp.Lease{Addr: prefix("10.1.0.5/32"), Gateway: addr("10.1.0.1"), Routes: []dhcp.Route{{Dst: prefix("10.9.0.0/16"), Gateway: addr("10.1.0.1")}}}, true,
			[]route{{prefix("10.1.0.1/32"), netip.Addr{}}, {prefix("10.9.0.0/16"), addr("10.1.0.1")}, {anywhere, addr("10.1.0.1")}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, podRoutes(&test.lease, test.defaultRoute), plainAddrs); diff != "" {
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
