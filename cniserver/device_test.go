// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
)

func TestFindInterfaceOfDevice(t *testing.T) {
	const parent = "0000:3b:10.2"
	link := func(name, parent string) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name, ParentDev: parent}}
	}
	for _, test := range []struct {
		name   string
		parent string
		links  []netlink.Link
		want   string
	}{
		{"by its device, whatever its name", parent, []netlink.Link{link("net1", ""), link("dev7", parent)}, "dev7"},
		{"another device's of the name", parent, []netlink.Link{link("net1", "0000:3b:10.3")}, ""},
		{"no device's of the name", parent, []netlink.Link{link("net1", "")}, ""},
		{"by its name, where the kernel does not say more", "", []netlink.Link{link("eth0", ""), link("net1", "")}, "net1"},
		{"a device's of the name, where it had none", "", []netlink.Link{link("net1", parent)}, ""},
		{"not there", "", []netlink.Link{link("eth0", "")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			interrupted := true
			got, err := (&device{Parent: test.parent}).find(func() ([]netlink.Link, error) {
				if interrupted {
					interrupted = false
					return nil, netlink.ErrDumpInterrupted
				}
				return test.links, nil
			}, "net1")
			if err != nil {
				t.Fatal(err)
			}
			name := ""
			if got != nil {
				name = got.Attrs().Name
			}
			if name != test.want {
				t.Errorf("got %q, want %q", name, test.want)
			}
		})
	}
}

// TestDeviceInfoDisagrees has a device plugin's information name another device than
// the configuration.
func TestDeviceInfoDisagrees(t *testing.T) {
	info := wire.DeviceInfo{PCI: &wire.PCIDevice{Address: "0000:3b:10.3"}}
	for _, deviceID := range []string{"0000:3b:10.2", ""} {
		var f *failure
		if d, err := (&Server{}).findDevice(deviceID, info); d != nil || !errors.As(err, &f) || f.code != 7 {
			t.Errorf("%q: got %v, error %v", deviceID, d, err)
		}
	}
}

func TestTransitNames(t *testing.T) {
	a, b := transitName("0000:3b:10.2"), transitName("0000:3b:10.3")
	if a == b || len(a) > maxIfName {
		t.Errorf("%s and %s", a, b)
	}
}
