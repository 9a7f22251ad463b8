// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is what sysfs says of a PCI device.
type Device struct {
	Address    string // as "0000:01:10.0"
	Driver     string // "" if it has none
	Override   string // the only driver that it may have; "" if any may
	Vendor     string // four hexadecimal digits, as DeviceID
	DeviceID   string
	Modalias   string
	VF         bool   // whether it is a virtual function
	PF         string // address of a virtual function's physical one
	VFIndex    int    // which of its virtual functions this is, from 0
	PFNetdev   string // interface of the physical function; "" if it has none here
	Netdev     string // the device's own interface; "" if it has none here
	IOMMUGroup string // "" if it has none
	VFIODevice string // its name below /dev/vfio/devices; "" if it has none
}

// pciAddress is sysfs's form of a PCI address. The domain of devices behind some
// controllers has more than four digits.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

func checkAddress(pci string) error {
	if !pciAddress.MatchString(pci) {
		return errors.New("this is not a PCI address, such as 0000:01:10.0")
	}
	return nil
}

// checkVF tells why a device is not a virtual function that its physical one can
// speak for.
func checkVF(d Device) error {
	switch {
	case !d.VF:
		return errors.New("it is not a virtual function")
	case d.PFNetdev == "":
		return fmt.Errorf("its physical function %s has no interface in this network namespace", d.PF)
	}
	return nil
}

// Device reads what sysfs says of a device that is not on loan: it waits for the end
// of a hand-off until ctx ends, and undoes one that was cut off. errors.Is(err,
// fs.ErrNotExist) holds where there is no device with this address.
func (h *Handoffs) Device(ctx context.Context, pci string) (Device, error) {
	d, err := h.device(pci) // also so that no turn is made up for a device that there is not
	if err == nil {
		d, err = h.deviceAtHome(ctx, pci)
	}
	if err != nil {
		return d, fmt.Errorf("PCI device %q: %w", pci, err)
	}
	return d, nil
}

func (h *Handoffs) deviceAtHome(ctx context.Context, pci string) (Device, error) {
	l, err := h.begin(ctx, pci)
	if err != nil {
		return Device{Address: pci}, err
	}
	defer l.end()
	if err := l.giveBack(); err != nil {
		return Device{Address: pci}, fmt.Errorf("undo an earlier hand-off: %w", err)
	}
	return h.device(pci)
}

func (h *Handoffs) device(pci string) (Device, error) {
	d := Device{Address: pci}
	if err := checkAddress(pci); err != nil {
		return d, err
	}
	dir := h.devicePath(pci)
	if _, err := os.Stat(dir); err != nil {
		return d, err
	}
	err := errors.Join(
		readFile(filepath.Join(dir, "vendor"), &d.Vendor),
		readFile(filepath.Join(dir, "device"), &d.DeviceID),
		readFile(filepath.Join(dir, "modalias"), &d.Modalias),
		readLink(filepath.Join(dir, "driver"), &d.Driver),
		readLink(filepath.Join(dir, "iommu_group"), &d.IOMMUGroup),
		readLink(filepath.Join(dir, "physfn"), &d.PF),
		firstEntry(filepath.Join(dir, "net"), &d.Netdev),
		firstEntry(filepath.Join(dir, "vfio-dev"), &d.VFIODevice),
	)
	var overrideErr error
	d.Override, overrideErr = h.override(pci)
	err = errors.Join(err, overrideErr)
	d.Vendor, d.DeviceID = strings.TrimPrefix(d.Vendor, "0x"), strings.TrimPrefix(d.DeviceID, "0x")
	if d.VF = d.PF != ""; err == nil && d.VF {
		err = h.readParent(&d)
	}
	return d, err
}

// readParent adds what the physical function says of its virtual one.
func (h *Handoffs) readParent(d *Device) error {
	dir := h.devicePath(d.PF)
	links, err := filepath.Glob(filepath.Join(dir, "virtfn*"))
	if err != nil {
		return err
	}
	d.VFIndex = -1
	for _, link := range links {
		var vf string
		if err := readLink(link, &vf); err != nil {
			return err
		}
		if vf == d.Address {
			if d.VFIndex, err = strconv.Atoi(strings.TrimPrefix(filepath.Base(link), "virtfn")); err != nil {
				return fmt.Errorf("%s is no index of a virtual function", link)
			}
		}
	}
	if d.VFIndex < 0 {
		return fmt.Errorf("physical function %s doesn't know it", d.PF)
	}
	d.PFNetdev, err = uplink(filepath.Join(dir, "net"))
	return err
}

func (h *Handoffs) devicePath(pci string) string {
	return filepath.Join(h.cfg.Sysfs, "bus/pci/devices", pci)
}

func (h *Handoffs) driverPath(driver string) string {
	return filepath.Join(h.cfg.Sysfs, "bus/pci/drivers", driver)
}

// override reads a device's driver_override; "" if there is none.
func (h *Handoffs) override(pci string) (string, error) {
	var value string
	if err := readFile(filepath.Join(h.devicePath(pci), "driver_override"), &value); err != nil {
		return "", err
	}
	if value == "(null)" {
		return "", nil
	}
	return value, nil
}

func readFile(path string, value *string) error {
	data, err := os.ReadFile(path)
	*value = strings.TrimSpace(string(data))
	return err
}

// readLink reads the last element of where a link leads to; "" if it isn't there.
func readLink(path string, value *string) error {
	target, err := os.Readlink(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	*value = filepath.Base(target)
	return err
}

// firstEntry reads the name of a folder's first entry; "" if there is none.
func firstEntry(dir string, value *string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		*value = entries[0].Name()
	}
	return nil
}

// writeFile writes to a file of sysfs or procfs, which acts on one whole write.
func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("kernel release: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}
