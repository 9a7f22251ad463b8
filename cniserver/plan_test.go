// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

func TestPlan(t *testing.T) {
	vf := func(change func(*vfio.Device)) *vfio.Device {
		d := &vfio.Device{Address: "0000:3b:10.2", VF: true, Driver: "iavf", Netdev: "ens1f0v2", PF: "0000:3b:00.0", IOMMUGroup: "7"}
		if change != nil {
			change(d)
		}
		return d
	}
	vfioBound := vf(func(d *vfio.Device) { d.Driver, d.Netdev = vfio.DriverVFIO, "" })
	guest, migrating := workload{vm: "vm1"}, workload{vm: "vm1", migrates: true}
	for _, test := range []struct {
		name    string
		missing []string
		w       workload
		device  *vfio.Device
		want    course
		err     string
	}{
		{name: "a pod", want: course{veth, kept}},
		{name: "a pod with a VF", device: vf(nil), want: course{netdevVF, kept}},
		{name: "a pod with a VF on vfio-pci", device: vfioBound, err: "for virtual machines"},
		{name: "a VM", w: guest, want: course{veth, discovered}},
		{name: "a VM with a VF on vfio-pci", w: guest, device: vfioBound, want: course{vfioVF, discovered}},
		{name: "a VM with a VF's interface", w: guest, device: vf(nil), want: course{netdevVF, discovered}},
		{name: "the target of a migration", w: migrating, want: course{veth, inherited}},
		{name: "the target of a migration with a VF on vfio-pci", w: migrating, device: vfioBound, want: course{vfioVF, inherited}},
		{name: "an unprivileged node", missing: []string{"CAP_NET_ADMIN", "CAP_SYS_ADMIN"}, err: "unprivileged (it lacks CAP_NET_ADMIN, CAP_SYS_ADMIN)"},
		{name: "an unprivileged node with a VM", missing: []string{"CAP_NET_RAW"}, w: guest, err: "unprivileged"},
		{name: "a physical function", device: vf(func(d *vfio.Device) { d.VF, d.PF = false, "" }), err: "not a virtual function"},
		{name: "a VM with a physical function", w: guest, device: vf(func(d *vfio.Device) { d.VF, d.Driver = false, vfio.DriverVFIO }), err: "not a virtual function"},
		{name: "a VF without a driver", device: vf(func(d *vfio.Device) { d.Driver = "" }), err: "no driver"},
		{name: "a VF without an interface", device: vf(func(d *vfio.Device) { d.Netdev = "" }), err: "gives it no interface"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := plan(test.missing, test.w, test.device)
			if got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got error %v, want one with %q", err, test.err)
			}
			if err != nil && test.device != nil && !strings.Contains(err.Error(), test.device.Address) {
				t.Errorf("error %q does not name the device", err)
			}
		})
	}
}

// TestStatusUnprivileged has a runtime ask a node that refuses every ADD.
func TestStatusUnprivileged(t *testing.T) {
	s := &Server{cfg: Config{PluginType: "plugin"}, missing: []string{"CAP_NET_RAW"}}
	config := `{"cniVersion":"1.1.0","name":"lan","type":"plugin","netAttachDefName":"ns/lan","topology":"localnet","ipam":{"type":"dhcp"}}`
	err := s.status(t.Context(), call{config: []byte(config)})
	var f *failure
	if !errors.As(err, &f) || f.code != errNotAvailable || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("got error %v", err)
	}
}
