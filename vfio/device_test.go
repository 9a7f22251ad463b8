// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDevice(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	alias := "pci:v00008086d000010CAsv00008086sd000010CAbc02sc00i00"
	m.must(m.unbind(vf1, DriverVFIO))
	m.probe(vf1)
	for _, want := range []Device{
		{Address: pf0, Driver: "igb", Vendor: "8086", DeviceID: "10ca", Modalias: alias, IOMMUGroup: "40", Netdev: "ens1"},
		{Address: vf0, Driver: DriverVFIO, Vendor: "8086", DeviceID: "10ca", Modalias: alias, IOMMUGroup: "41", VF: true, PF: pf0, VFIndex: 0, PFNetdev: "ens1", VFIODevice: "vfio0"},
		{Address: vf1, Driver: nic, Vendor: "8086", DeviceID: "10ca", Modalias: alias, IOMMUGroup: "42", VF: true, PF: pf0, VFIndex: 1, PFNetdev: "ens1", Netdev: "eth0"},
	} {
		got, err := h.Device(t.Context(), want.Address)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Address, diff)
		}
	}
}

func FuzzAddress(f *testing.F) {
	for _, ok := range []string{vf0, "10000:e1:00.7", "0000:ff:1f.0"} {
		if checkAddress(ok) != nil {
			f.Errorf("%q is refused", ok)
		}
		f.Add(ok)
	}
	for _, bad := range []string{
		"", "01:10.0", "0000:01:10.8", "0000:01:20.0", "0000:01:10.0\n", " 0000:01:10.0", "0000:01:10.0/../0000:01:00.0", "../../../../etc", "0000:AB:10.0",
		"0000:01:10.0\x00", "123456789:01:00.0", "..",
	} {
		if checkAddress(bad) == nil {
			f.Errorf("%q is let through", bad)
		}
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, pci string) {
		if checkAddress(pci) != nil {
			return
		}
		if strings.Trim(pci, "0123456789abcdef:.") != "" || strings.Contains(pci, "..") || filepath.Base(pci) != pci {
			t.Errorf("%q is let through", pci)
		}
	})
}

func TestIsDeviceFile(t *testing.T) {
	d := Device{IOMMUGroup: "41", VFIODevice: "vfio0"}
	for path, want := range map[string]bool{
		"/dev/vfio/41": true, "/vfio/41": true, "/dev/vfio/noiommu-41": true, "/dev/vfio/devices/vfio0": true,
		"/dev/vfio/4": false, "/dev/vfio/141": false, "/dev/vfio/vfio": false, "/dev/vfio/devices/vfio01": false, "/dev/vfio/devices": false,
		"socket:[41]": false, "/dev/vfio": false,
	} {
		if isDeviceFile(path, d) != want {
			t.Errorf("%s: not %v", path, want)
		}
	}
}

// TestDeviceAtHome looks at a device whose hand-off was cut off, and at one whose
// hand-off goes on: neither belongs to the NIC driver that it is with.
func TestDeviceAtHome(t *testing.T) {
	m := newMachine(t)
	h := m.handoffs()
	m.crashIn = "before " + string(stepUse)
	if err := h.Borrow(t.Context(), vf0, guest, nothing); !errors.Is(err, errDead) {
		t.Fatal(err)
	}
	h = m.handoffs()
	if d, err := h.Device(t.Context(), vf0); err != nil || d.Driver != DriverVFIO || d.Netdev != "" {
		t.Errorf("cut off: %+v, %v", d, err)
	}
	if diff := cmp.Diff(home(none), m.see(vf0)); diff != "" {
		t.Errorf("device (-want +got):\n%s", diff)
	}
	err := h.Borrow(t.Context(), vf0, guest, func(ctx context.Context, _ string) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		if d, err := h.Device(ctx, vf0); !errors.Is(err, context.Canceled) {
			t.Errorf("on loan: %+v, %v", d, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
