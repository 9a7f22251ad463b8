// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"strings"
	"testing"
)

const aliases = `# Aliases extracted from modules themselves.
alias pci:v00001425d00005801sv*sd*bc*sc*i* cxgb4vf
alias pci:v00001DED0000????sv*sd*bc*sc*i* short
alias pci:v000019E5d0000375Esv*sd*bc*sc*i* hinic
alias pci:v000019E5d0000375Esv*sd*bc*sc*i* hinic
alias pci:v00001AF4d*sv*sd*bc*sc*i* virtio_pci
alias pci:v00001AF4d00001041sv*sd*bc02sc*i* other_net
alias vfio_pci:v000019E5d0000375Esv*sd*bc*sc*i* hns_vfio_pci
alias pci:v0000[bad malformed
alias pci:* extra words
`

func TestAliasDriver(t *testing.T) {
	for modalias, want := range map[string]string{
		"pci:v00001425d00005801sv00001425sd00000000bc02sc00i00": "cxgb4vf",
		"pci:v000019E5d0000375Esv000019E5sd0000D136bc02sc00i00": "hinic",
		"pci:v00001AF4d00001042sv00001AF4sd00001100bc01sc00i00": "virtio_pci",
		"pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00": "error: one of virtio_pci, other_net",
		"pci:v0000FFFFd00001041sv00001AF4sd00001100bc02sc00i00": "error: none is known",
		"": "error: none is known",
	} {
		got, err := aliasDriver([]byte(aliases), modalias)
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, want) || (err == nil && got != want) {
			t.Errorf("%s: %s, not %s", modalias, got, want)
		}
	}
}

func FuzzAliasDriver(f *testing.F) {
	f.Add(aliases, "pci:v00001425d00005801sv00001425sd00000000bc02sc00i00")
	f.Fuzz(func(t *testing.T, aliases, modalias string) {
		driver, err := aliasDriver([]byte(aliases), modalias)
		if (err == nil) == (driver == "") || !strings.Contains(aliases, driver) {
			t.Errorf("driver %q, error %v", driver, err)
		}
	})
}

func TestNICDriver(t *testing.T) {
	m := newMachine(t)
	m.mkdir(m.sysfs, "bus/pci/drivers/hinic")
	h := m.handoffs()
	m.put(aliases, h.cfg.Modules, "modules.alias")
	for _, c := range []struct {
		device Device
		want   string
	}{
		{Device{Vendor: "8086", DeviceID: "10ca"}, nic},
		{Device{Vendor: "19e5", DeviceID: "375e", Modalias: "pci:v000019E5d0000375Esv000019E5sd0000D136bc02sc00i00"}, "hinic"},
		{Device{Vendor: "15b3", DeviceID: "101e"}, "error: NIC driver mlx5_core is not loaded"},
		{Device{Vendor: "14e4", DeviceID: "ffff", Modalias: "pci:v000014E4d0000FFFFsv*"}, "error: NIC driver of vendor 14e4, device ffff: none is known"},
	} {
		got, err := h.nicDriver(c.device)
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s:%s: %s, not %s", c.device.Vendor, c.device.DeviceID, got, c.want)
		}
	}
}

// TestKnownDrivers holds the table to what has been looked up in the drivers'
// own tables, and to having each device once.
func TestKnownDrivers(t *testing.T) {
	for id, want := range map[string]string{
		"8086:10ca": "igbvf", "8086:1520": "igbvf", "8086:10ed": "ixgbevf", "8086:154c": "iavf", "8086:1889": "iavf",
		"15b3:1018": "mlx5_core", "15b3:101e": "mlx5_core", "14e4:16dc": "bnxt_en", "14e4:1806": "bnxt_en", "19ee:6003": "nfp_netvf", "8086:1572": "",
	} {
		vendor, device, _ := strings.Cut(id, ":")
		if got := knownDriver(vendor, device); got != want {
			t.Errorf("%s: %q, not %q", id, got, want)
		}
	}
	seen := map[string]bool{}
	for _, d := range nicDrivers {
		for _, device := range d.devices {
			if id := d.vendor + ":" + device; seen[id] || len(id) != 9 {
				t.Errorf("%s: twice, or no PCI id", id)
			} else {
				seen[id] = true
			}
		}
	}
}
