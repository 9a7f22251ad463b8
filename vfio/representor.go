// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// Forms of phys_port_name, which the kernel's devlink code writes. Some drivers
// have forms of their own: "pf0vfr1", or only the number of the virtual function.
var (
	uplinkPort = regexp.MustCompile(`^p\d+(s\d+)?$`)
	vfPort     = regexp.MustCompile(`^(?:(?:c0)?pf(\d+)vfr?)?(\d+)$`)
)

// Representor returns the host's interface that stands for a virtual function on
// the NIC's embedded switch. A NIC whose switch isn't in switchdev mode has none,
// which is an error.
func (h *Handoffs) Representor(pci string) (string, error) {
	netdev, err := h.representor(pci)
	if err != nil {
		return "", fmt.Errorf("representor of PCI device %q: %w", pci, err)
	}
	return netdev, nil
}

func (h *Handoffs) representor(pci string) (string, error) {
	d, err := h.device(pci)
	if err == nil {
		err = checkVF(d)
	}
	if err != nil {
		return "", err
	}
	netdevs := filepath.Join(h.cfg.Sysfs, "class/net")
	eswitch, err := netdevAttribute(netdevs, d.PFNetdev, "phys_switch_id")
	if err == nil && eswitch == "" {
		err = fmt.Errorf("the embedded switch of %s is not in switchdev mode", d.PFNetdev)
	}
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(netdevs)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		id, err := netdevAttribute(netdevs, e.Name(), "phys_switch_id")
		if err != nil || id != eswitch {
			continue // some drivers have errors of their own for "no switch"
		}
		if port, err := netdevAttribute(netdevs, e.Name(), "phys_port_name"); err == nil && isVFPort(port, d) {
			return e.Name(), nil
		}
	}
	return "", fmt.Errorf("no interface on the embedded switch of %s is the port of virtual function %d", d.PFNetdev, d.VFIndex)
}

// isVFPort tells whether a phys_port_name is that of a virtual function. Ports
// count physical functions as PCI does. NICs that are bonded can share a switch,
// so that the number of the virtual function alone would not do.
func isVFPort(port string, d Device) bool {
	m := vfPort.FindStringSubmatch(port)
	if m == nil || m[2] != strconv.Itoa(d.VFIndex) {
		return false
	}
	return m[1] == "" || m[1] == d.PF[len(d.PF)-1:]
}

// uplink finds the interface of a physical function itself among those in its
// net folder, where its representors are, too. It is "" if there is none.
func uplink(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range entries {
		port, err := netdevAttribute(dir, e.Name(), "phys_port_name")
		if err != nil {
			return "", err
		}
		if port == "" || uplinkPort.MatchString(port) {
			return e.Name(), nil
		}
	}
	return "", nil
}

// netdevAttribute reads what a driver says of an interface; "" if it says
// nothing, or the interface is gone.
func netdevAttribute(dir, netdev, attribute string) (string, error) {
	var value string
	err := readFile(filepath.Join(dir, netdev, attribute), &value)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	return value, err
}
