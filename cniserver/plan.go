// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// plumbing is what joins a pod, or its guest, with the node's bridge.
type plumbing string

const (
	// veth is a pair of interfaces, one of them in the pod.
	veth plumbing = "veth"
	// netdevVF is the interface of a virtual function, in the pod, and its
	// representor.
	netdevVF plumbing = "netdev"
	// vfioVF is a virtual function that is passed to a guest as it is, and its
	// representor. The pod has no interface.
	vfioVF plumbing = "vfio"
)

// tenure says whose the address is, and so where an ADD has it from.
type tenure string

const (
	// kept is the pod's own: on its interface, by a lease that the node keeps.
	kept tenure = "kept"
	// discovered is the guest's, found out by asking the DHCP server in its name.
	// It is told, and put on no interface: the guest's own client is to get it.
	discovered tenure = "discovered"
	// inherited is that of a guest which runs in another pod, and migrates to this
	// one: nobody is asked.
	inherited tenure = "inherited"
)

// course is how a workload is attached.
type course struct {
	plumbing plumbing
	tenure   tenure
}

// workload is what matters of a pod for its course.
type workload struct {
	// vm is the name of the virtual machine that runs in it, "" if none does.
	vm string
	// migrates says that the machine runs in another pod with this attachment.
	migrates bool
}

// plan is the table of workloads: the course of an attachment, or why there is
// none. missing are the capabilities that the node daemon should have and has not;
// device is nil for an attachment without one.
func plan(missing []string, w workload, device *vfio.Device) (course, error) {
	if err := checkPrivilege(missing); err != nil {
		return course{}, fail(types.ErrUnsupportedField, err)
	}
	p, err := planDevice(device)
	switch {
	case err != nil:
		return course{}, fail(types.ErrInvalidNetworkConfig, fmt.Errorf("deviceID: Invalid value: %q: %w", device.Address, err))
	case w.migrates:
		return course{p, inherited}, nil
	case w.vm != "":
		return course{p, discovered}, nil
	case p == vfioVF:
		return course{}, fail(types.ErrInvalidNetworkConfig, fmt.Errorf(
			"deviceID: Invalid value: %q: it is bound to %s, which is for virtual machines: no interface can be made of it for a pod", device.Address, vfio.DriverVFIO))
	}
	return course{p, kept}, nil
}

func planDevice(device *vfio.Device) (plumbing, error) {
	switch {
	case device == nil:
		return veth, nil
	case !device.VF:
		return "", errors.New("it is not a virtual function")
	case device.Driver == vfio.DriverVFIO:
		return vfioVF, nil
	case device.Driver == "":
		return "", errors.New("it has no driver")
	case device.Netdev == "":
		return "", fmt.Errorf("its driver %s gives it no interface on the node", device.Driver)
	}
	return netdevVF, nil
}
