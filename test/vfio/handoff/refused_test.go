// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

package handoff

import (
	"testing"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/vfio/card"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// TestRefused has hand-offs that fail before anything is touched.
func TestRefused(t *testing.T) {
	pf, err := card.PFAddress()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		pci     string // "" means the device's
		arrange func(d *device)
		want    string
	}{
		"malformed id":         {pci: "01:10.0", want: "not a PCI address"},
		"path":                 {pci: "../0000:01:10.0", want: "not a PCI address"},
		"no such device":       {pci: "0000:7f:10.0", want: "no such file"},
		"physical function":    {pci: pf, want: "not a virtual function"},
		"no driver":            {arrange: func(d *device) { d.bind("") }, want: "no driver"},
		"on its NIC driver":    {arrange: func(d *device) { d.bind("igbvf") }, want: "its driver is igbvf"},
		"open in a process":    {arrange: (*device).keepOpen, want: "open in process"},
		"unknown device":       {arrange: func(d *device) { d.pretend("device", "0x0001") }, want: "none is known"},
		"driver is not loaded": {arrange: func(d *device) { d.pretend("device", "0x1889") }, want: "NIC driver iavf is not loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			d, h := newDevice(t, 0), newHandoffs(t, vfio.Config{})
			pci := d.pci
			if tt.pci != "" {
				pci = tt.pci
			}
			if tt.arrange != nil {
				tt.arrange(d)
			}
			before := d.status()
			wantError(t, h.Borrow(t.Context(), pci, d.mac, unused(t)), tt.want)
			if after := d.status(); after != before {
				t.Errorf("%s has %s, before: %s", d.pci, after, before)
			}
			h.mustBeEmpty(t)
		})
	}
}

// TestPFElsewhere has the physical function's interface in another network
// namespace: the MAC address can't be set.
func TestPFElsewhere(t *testing.T) {
	d, h := newDevice(t, 0), newHandoffs(t, vfio.Config{})
	run(t, "ip", "netns", "add", "elsewhere")
	run(t, "ip", "link", "set", card.PF, "netns", "elsewhere")
	err := h.Borrow(t.Context(), d.pci, d.mac, unused(t))
	run(t, "ip", "-n", "elsewhere", "link", "set", card.PF, "netns", "1")
	run(t, "ip", "link", "set", card.PF, "up")
	run(t, "ip", "netns", "del", "elsewhere")
	wantError(t, err, "no interface in this network namespace")
	d.mustBeAsBefore(h)
}
