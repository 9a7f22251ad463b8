// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"strings"
	"testing"
)

// switchdev makes the machine's NIC one whose switch has these ports.
func (m *machine) switchdev(ports map[string]string) {
	for netdev, port := range ports {
		if netdev != "ens1" {
			m.addNetdev(pf0, netdev, none)
		}
		m.put("aabbcc\n", m.device(pf0), "net", netdev, "phys_switch_id")
		m.put(port+"\n", m.device(pf0), "net", netdev, "phys_port_name")
	}
}

func TestRepresentor(t *testing.T) {
	for name, c := range map[string]struct {
		pci   string
		ports map[string]string
		want  string
	}{
		"devlink's form":    {vf1, map[string]string{"ens1": "p0", "a0": "pf0vf0", "b1": "pf0vf1"}, "b1"},
		"own controller":    {vf1, map[string]string{"ens1": "p0", "a0": "c0pf0vf0", "b1": "c0pf0vf1"}, "b1"},
		"ice's form":        {vf0, map[string]string{"ens1": "p0", "a0": "pf0vfr0", "b1": "pf0vfr1"}, "a0"},
		"number only":       {vf1, map[string]string{"ens1": "p0", "a0": "0", "b1": "1"}, "b1"},
		"uplink is last":    {vf0, map[string]string{"ens1": "p0s0", "a0": "pf0vf0"}, "a0"},
		"uplink has none":   {vf0, map[string]string{"ens1": "", "a0": "pf0vf0"}, "a0"},
		"two digits":        {vf1, map[string]string{"ens1": "p0", "a0": "pf0vf11", "b1": "pf0vf1"}, "b1"},
		"bonded NIC's":      {vf1, map[string]string{"ens1": "p0", "a0": "pf1vf1", "b1": "pf0vf1"}, "b1"},
		"other controller":  {vf1, map[string]string{"ens1": "p0", "a0": "c1pf0vf1"}, `error: representor of PCI device "0000:01:10.2": no interface on the embedded switch of ens1`},
		"scalable function": {vf1, map[string]string{"ens1": "p0", "a0": "pf0sf1"}, `error: representor of PCI device "0000:01:10.2": no interface`},
		"no switchdev":      {vf1, nil, `error: representor of PCI device "0000:01:10.2": the embedded switch of ens1 is not in switchdev mode`},
		"no VF":             {pf0, nil, `error: representor of PCI device "0000:01:00.0": it is not a virtual function`},
		"no address":        {"../x", nil, `error: representor of PCI device "../x": this is not a PCI address`},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.switchdev(c.ports)
			// Another NIC's port of the same number.
			m.mkdir(m.sysfs, "class/net/other")
			m.put("ddeeff\n", m.sysfs, "class/net/other/phys_switch_id")
			m.put("pf0vf1\n", m.sysfs, "class/net/other/phys_port_name")
			got, err := m.handoffs().Representor(c.pci)
			if err != nil {
				got = "error: " + err.Error()
			}
			if !strings.HasPrefix(got, c.want) || (err == nil && got != c.want) {
				t.Errorf("representor is %s, not %s", got, c.want)
			}
		})
	}
}
