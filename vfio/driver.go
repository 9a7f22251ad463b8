// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// nicDrivers are the drivers of virtual functions that are known by vendor and
// device. What driver_override names is bound whether it knows the device or
// not, so nothing is guessed.
var nicDrivers = []struct {
	vendor, driver string
	devices        []string
}{
	{"8086", "igbvf", []string{"10ca", "1520"}},
	{"8086", "ixgbevf", []string{"10ed", "152e", "1515", "1530", "1564", "1565", "15a8", "15a9", "15b4", "15c5"}},
	{"8086", "iavf", []string{"154c", "1571", "1889", "37cd"}},
	{"15b3", "mlx4_core", []string{"1002", "1004"}},
	{"15b3", "mlx5_core", []string{"1012", "1014", "1016", "1018", "101a", "101c", "101e", "a2d3"}},
	{"14e4", "bnxt_en", []string{"1606", "1609", "16c1", "16cb", "16d3", "16dc", "16e1", "16e5", "1806", "1807", "1808", "1809"}},
	{"19ee", "nfp_netvf", []string{"6003"}},
}

// nicDriver is the NIC driver that fits a device, and that the kernel has.
func (h *Handoffs) nicDriver(d Device) (string, error) {
	driver := knownDriver(d.Vendor, d.DeviceID)
	if driver == "" {
		aliases, err := os.ReadFile(filepath.Join(h.cfg.Modules, "modules.alias"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("NIC driver: %w", err)
		}
		if driver, err = aliasDriver(aliases, d.Modalias); err != nil {
			return "", fmt.Errorf("NIC driver of vendor %s, device %s: %w", d.Vendor, d.DeviceID, err)
		}
	}
	if _, err := os.Stat(h.driverPath(driver)); err != nil {
		return "", fmt.Errorf("NIC driver %s is not loaded: %w", driver, err)
	}
	return driver, nil
}

// knownDriver is the driver in the table; "" if there is none.
func knownDriver(vendor, device string) string {
	for _, d := range nicDrivers {
		if d.vendor == vendor && slices.Contains(d.devices, device) {
			return d.driver
		}
	}
	return ""
}

// aliasDriver finds the module for a device as modprobe does: by a pattern in
// modules.alias that the device's modalias matches. A NIC driver is called as
// its module is. More than one module that fits is an error: any could be right.
func aliasDriver(aliases []byte, modalias string) (string, error) {
	var found []string
	for lines := bufio.NewScanner(bytes.NewReader(aliases)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] != "alias" {
			continue
		}
		if ok, err := path.Match(fields[1], modalias); err == nil && ok && !slices.Contains(found, fields[2]) {
			found = append(found, fields[2])
		}
	}
	switch {
	case modalias == "" || len(found) == 0:
		return "", fmt.Errorf("none is known for %q", modalias)
	case len(found) > 1:
		return "", fmt.Errorf("one of %s", strings.Join(found, ", "))
	}
	return found[0], nil
}
