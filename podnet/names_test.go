// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import "testing"

func TestNames(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Prefix("tenant-a/lan"), "tenant.a.lan_"},
		{SwitchName("lan-1"), "lan.1_ovn_localnet_switch"},
		{LocalnetPortName("lan-1"), "lan.1_ovn_localnet_port"},
		{PortName("ns-a/lan", "shop", "web-0"), "ns.a.lan_shop_web-0"},
		{PortName("ns/lan/1", "shop", "web-0"), "ns.lan.1_shop_web-0"},
		{NADName("ns/lan/1"), "ns/lan"},
		{NADName("ns/lan"), "ns/lan"},
		{NADName("default"), "default"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestDeriveMAC(t *testing.T) {
	mac := DeriveMAC("cluster", "ns", "pod", "ns/lan")
	if got := DeriveMAC("cluster", "ns", "pod", "ns/lan").String(); got != mac.String() {
		t.Errorf("the same attachment has MACs %s and %s", mac, got)
	}
	if mac[0]&0x03 != 0x02 {
		t.Errorf("MAC %s is not a locally administered unicast address", mac)
	}
	for _, other := range [][4]string{
		{"cluster2", "ns", "pod", "ns/lan"},
		{"cluster", "ns2", "pod", "ns/lan"},
		{"cluster", "ns", "pod2", "ns/lan"},
		{"cluster", "ns", "pod", "ns/lan/1"},
		{"cluster", "nsp", "od", "ns/lan"},
	} {
		if got := DeriveMAC(other[0], other[1], other[2], other[3]); got.String() == mac.String() {
			t.Errorf("attachment %v has the MAC of another", other)
		}
	}
}

func TestParseMAC(t *testing.T) {
	for s, ok := range map[string]bool{
		"02:00:00:00:00:01":             true,
		"0A-58-0A-01-00-01":             true,
		"":                              false,
		"00:00:00:00:00:00":             false,
		"01:00:5e:00:00:01":             false,
		"ff:ff:ff:ff:ff:ff":             false,
		"02:00:00:00:00:01:00:01":       false,
		"02:00:00:00:00:01 10.0.0.1":    false,
		"00:00:00:00:fe:80:00:00:00:00": false,
	} {
		if _, err := ParseMAC(s); (err == nil) != ok {
			t.Errorf("ParseMAC(%q): error %v, want ok %v", s, err, ok)
		}
	}
}
