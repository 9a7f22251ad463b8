// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package card is the SR-IOV NIC of the emulated machine, and the NIC at the
// other end of its wire.
package card

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// Interfaces of the machine, in its first network namespace.
const (
	PF  = "pf0"  // of the physical function
	Far = "far0" // at the other end of its wire
)

// Netns is a path of that network namespace.
const Netns = "/machine.netns"

// Proc is a procfs with all processes, which are not all in a lab's own.
const Proc = "/machine.proc"

const (
	bus     = "/sys/bus/pci"
	pciVFIO = "vfio-pci"
)

// SetUp makes n virtual functions, all of which belong to vfio-pci then, and
// names the interfaces. It is called once, in the machine's first network
// namespace.
func SetUp(n int) error {
	if err := nameInterfaces(); err != nil {
		return err
	}
	pf, err := netlink.LinkByName(PF)
	if err == nil {
		err = netlink.LinkSetUp(pf)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", PF, err)
	}
	device := filepath.Join("/sys/class/net", PF, "device")
	// A driver takes what it is given, and nothing by itself.
	if err := write(filepath.Join(device, "sriov_drivers_autoprobe"), "0"); err != nil {
		return err
	}
	if err := write(filepath.Join(device, "sriov_numvfs"), strconv.Itoa(n)); err != nil {
		return err
	}
	vfs, err := VFs()
	if err != nil {
		return err
	}
	for _, vf := range vfs {
		if err := Bind(vf, pciVFIO); err != nil {
			return err
		}
	}
	return nil
}

// nameInterfaces tells the two NICs apart by their drivers.
func nameInterfaces() error {
	names := map[string]string{"igb": PF, "virtio_net": Far}
	paths, err := filepath.Glob("/sys/class/net/*/device/driver")
	if err != nil {
		return err
	}
	for _, path := range paths {
		name := names[base(path)]
		link, err := netlink.LinkByName(filepath.Base(filepath.Dir(filepath.Dir(path))))
		if err == nil && name != "" {
			err = netlink.LinkSetName(link, name)
		}
		if err != nil {
			return fmt.Errorf("name interface %s: %w", name, err)
		}
	}
	return nil
}

// PFAddress is the PCI address of the physical function.
func PFAddress() (string, error) {
	paths, err := filepath.Glob(bus + "/devices/*/sriov_numvfs")
	if err != nil {
		return "", err
	}
	if len(paths) != 1 {
		return "", fmt.Errorf("%d devices can have virtual functions, not one", len(paths))
	}
	return filepath.Base(filepath.Dir(paths[0])), nil
}

// VFs are the PCI addresses of the virtual functions, in their order.
func VFs() ([]string, error) {
	pf, err := PFAddress()
	if err != nil {
		return nil, err
	}
	links, err := filepath.Glob(filepath.Join(bus, "devices", pf, "virtfn*"))
	if err != nil {
		return nil, err
	}
	var vfs []string
	for _, link := range links {
		vfs = append(vfs, base(link))
	}
	slices.Sort(vfs)
	return vfs, nil
}

// Driver is the driver that a device is bound to, "" if there is none.
func Driver(device string) string { return base(filepath.Join(bus, "devices", device, "driver")) }

// Override is the only driver that may have a device, "" if any may.
func Override(device string) (string, error) {
	data, err := os.ReadFile(filepath.Join(bus, "devices", device, "driver_override"))
	value := strings.TrimSpace(string(data))
	if value == "(null)" {
		value = ""
	}
	return value, err
}

// Bind gives a device to a driver for good, to none if driver is "".
func Bind(device, driver string) error {
	dir := filepath.Join(bus, "devices", device)
	if Driver(device) != "" {
		if err := write(filepath.Join(dir, "driver/unbind"), device); err != nil {
			return err
		}
	}
	if err := Pin(device, driver); err != nil {
		return err
	}
	if driver == "" {
		return nil
	}
	if err := write(bus+"/drivers_probe", device); err != nil {
		return err
	}
	if now := Driver(device); now != driver {
		return fmt.Errorf("device %s is bound to %q, not to %q", device, now, driver)
	}
	return nil
}

// Pin says which driver alone may have a device, any if driver is "". It stays with the
// one that it has.
func Pin(device, driver string) error {
	return write(filepath.Join(bus, "devices", device, "driver_override"), driver+"\n")
}

// base is the last element of where a link leads, "" if it is not there.
func base(link string) string {
	target, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func write(path, value string) error { return os.WriteFile(path, []byte(value), 0) }
