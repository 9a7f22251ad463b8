// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWayNamed(t *testing.T) {
	for configuration, want := range map[string]struct {
		device string
		port   bool
	}{
		`{"type":"bridge","bridge":"br0"}`:                          {"br0", true},
		`{"type":"bridge"}`:                                         {"", true},
		`{"type":"bridge","master":"eth0"}`:                         {"", true},
		`{"type":"macvlan","master":"eth0","bridge":"br0"}`:         {"eth0", false},
		`{"type":"macvlan","master":"eth0","linkInContainer":true}`: {},
		`{"type":"ipvlan","master":"eth0","bridge":"br0"}`:          {},
		`{"type":"other","master":7}`:                               {},
		`{"bridge":"br0","master":"eth0"}`:                          {},
	} {
		args := cmdArgs(`{"type":"dhcp"}`)
		args.StdinData = []byte(`{"name":"lan","ipam":{"type":"dhcp"},` + configuration[1:])
		c, err := parseCall(args)
		if err != nil {
			t.Fatal(err)
		}
		if device, port := c.uplink.named(); device != want.device || port != want.port {
			t.Errorf("%s: got %q, port %v, want %v", configuration, device, port, want)
		}
	}
}

func TestCheckBridge(t *testing.T) {
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
		if err := checkBridge(test.device); (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
