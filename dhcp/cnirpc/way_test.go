// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWayNamed(t *testing.T) {
	for configuration, want := range map[string]string{
		`{"type":"bridge","bridge":"br0"}`:                          "br0",
		`{"type":"bridge"}`:                                         "",
		`{"type":"bridge","master":"eth0"}`:                         "",
		`{"type":"macvlan","master":"eth0","bridge":"br0"}`:         "eth0",
		`{"type":"macvlan","master":"eth0","linkInContainer":true}`: "",
		`{"type":"ipvlan","master":"eth0","bridge":"br0"}`:          "",
		`{"type":"other","master":7}`:                               "",
		`{"bridge":"br0","master":"eth0"}`:                          "",
	} {
		args := cmdArgs(`{"type":"dhcp"}`)
		args.StdinData = []byte(`{"name":"lan","ipam":{"type":"dhcp"},` + configuration[1:])
		c, err := parseCall(args)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.uplink.named(); got != want {
			t.Errorf("%s: got %q, want %q", configuration, got, want)
		}
	}
}

func TestCheckWay(t *testing.T) {
	yes, no := true, false
	for name, test := range map[string]struct {
		device netlink.Link
		want   bool
	}{
		"no bridge":                {&netlink.Dummy{}, true},
		"bridge":                   {&netlink.Bridge{VlanFiltering: &no}, true},
		"bridge that says nothing": {&netlink.Bridge{}, true},
		"bridge with VLANs":        {&netlink.Bridge{VlanFiltering: &yes}, false},
	} {
		if err := checkWay(test.device); (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
