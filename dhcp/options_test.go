// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

func TestRouting(t *testing.T) {
	const router, static, classless, ms = 3, 33, 121, 249
	route := func(dst, gateway string) Route {
		r := Route{Dst: netip.MustParsePrefix(dst)}
		if gateway != "" {
			r.Gateway = netip.MustParseAddr(gateway)
		}
		return r
	}
	for name, test := range map[string]struct {
		options dhcpv4.Options
		gateway string
		routes  []Route
	}{
		"nothing":              {},
		"router":               {options: dhcpv4.Options{router: {192, 0, 2, 1}}, gateway: "192.0.2.1"},
		"first useful router":  {options: dhcpv4.Options{router: {0, 0, 0, 0, 192, 0, 2, 77, 224, 0, 0, 1, 192, 0, 2, 2, 192, 0, 2, 3}}, gateway: "192.0.2.2"},
		"router malformed":     {options: dhcpv4.Options{router: {192, 0, 2}}},
		"default in classless": {options: dhcpv4.Options{router: {192, 0, 2, 1}, classless: {0, 192, 0, 2, 9}}, gateway: "192.0.2.9"},
		"classless without default": {
			options: dhcpv4.Options{router: {192, 0, 2, 1}, static: {10, 0, 0, 0, 192, 0, 2, 1}, classless: {8, 10, 192, 0, 2, 9}},
			routes:  []Route{route("10.0.0.0/8", "192.0.2.9")},
		},
		"classless malformed": {options: dhcpv4.Options{router: {192, 0, 2, 1}, classless: {33, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, gateway: "192.0.2.1"},
		"classless cut":       {options: dhcpv4.Options{router: {192, 0, 2, 1}, classless: {8, 10, 192, 0, 2}}, gateway: "192.0.2.1"},
		"classless empty":     {options: dhcpv4.Options{router: {192, 0, 2, 1}, classless: {}}, gateway: "192.0.2.1"},
		"Microsoft's number":  {options: dhcpv4.Options{router: {192, 0, 2, 1}, ms: {0, 192, 0, 2, 9}}, gateway: "192.0.2.9"},
		"both numbers":        {options: dhcpv4.Options{classless: {0, 192, 0, 2, 8}, ms: {0, 192, 0, 2, 9}}, gateway: "192.0.2.8"},
		"on link": {
			options: dhcpv4.Options{classless: {32, 198, 51, 100, 7, 0, 0, 0, 0, 0, 198, 51, 100, 7}},
			gateway: "198.51.100.7",
			routes:  []Route{route("198.51.100.7/32", "")},
		},
		"default on link":    {options: dhcpv4.Options{classless: {0, 0, 0, 0, 0}}},
		"bits beyond mask":   {options: dhcpv4.Options{classless: {12, 10, 31, 192, 0, 2, 9}}, routes: []Route{route("10.16.0.0/12", "192.0.2.9")}},
		"useless gateways":   {options: dhcpv4.Options{classless: {8, 10, 127, 0, 0, 1, 8, 11, 224, 0, 0, 1, 8, 12, 192, 0, 2, 77}}},
		"classful":           {options: dhcpv4.Options{static: {10, 0, 0, 0, 192, 0, 2, 1, 172, 16, 0, 0, 192, 0, 2, 2, 198, 51, 100, 0, 192, 0, 2, 3}}, routes: []Route{route("10.0.0.0/8", "192.0.2.1"), route("172.16.0.0/16", "192.0.2.2"), route("198.51.100.0/24", "192.0.2.3")}},
		"classful host":      {options: dhcpv4.Options{static: {10, 1, 0, 0, 192, 0, 2, 1}}, routes: []Route{route("10.1.0.0/32", "192.0.2.1")}},
		"classful default":   {options: dhcpv4.Options{router: {192, 0, 2, 1}, static: {0, 0, 0, 0, 192, 0, 2, 9}}, gateway: "192.0.2.1"},
		"classful malformed": {options: dhcpv4.Options{static: {10, 0, 0, 0, 192, 0, 2, 1, 11, 0, 0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			var want netip.Addr
			if test.gateway != "" {
				want = netip.MustParseAddr(test.gateway)
			}
			gateway, routes := routing(test.options, leasedIP)
			if gateway != want {
				t.Errorf("gateway %v, want %v", gateway, want)
			}
			if diff := cmp.Diff(test.routes, routes, compareAddrs); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidName(t *testing.T) {
	label := strings.Repeat("x", 63)
	for name, want := range map[string]bool{
		"a": true, "web-0.ns.svc": true, "_sip._tcp.example.org": true, "A1.B2": true, "0": true, label + "." + label: true,
		"": false, ".": false, "a.": false, ".a": false, "a..b": false, "-a": false, "a-.b": false, "a b": false, "a\n": false,
		"a\x00": false, "ä": false, "a/b": false, "$(x)": false, label + "x": false, "{": false, "@": false, "[": false,
		strings.Repeat(label+".", 4) + "x": false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%q) = %v", name, got)
		}
	}
}
