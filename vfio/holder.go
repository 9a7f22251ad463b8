// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// checkUnused fails if a process has the device open, by its IOMMU group or by
// itself. A group that is open is in use even if this device of it isn't: the
// kernel binds none of a group's devices to a NIC driver then.
func (h *Handoffs) checkUnused(d Device) error {
	links, err := filepath.Glob(filepath.Join(h.cfg.Proc, "[0-9]*", "fd"))
	if err != nil {
		return err
	}
	for _, dir := range links {
		open, err := hasOpen(dir, d)
		if err != nil {
			return fmt.Errorf("look for processes that have it open: %w", err)
		}
		if open {
			var name string
			process := filepath.Dir(dir)
			// The process may end at this moment; then its name is empty.
			_ = readFile(filepath.Join(process, "comm"), &name)
			return fmt.Errorf("it is open in process %s (%s)", filepath.Base(process), name)
		}
	}
	return nil
}

// hasOpen tells whether one of the files in a process's fd folder is the
// device's. A process that ends meanwhile has none.
func hasOpen(dir string, d Device) (bool, error) {
	fds, err := os.ReadDir(dir)
	for _, fd := range fds {
		target, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && isDeviceFile(target, d) {
			return true, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	return false, err
}

// isDeviceFile tells whether a file is one by which a device is used. Its path
// may be one of another mount namespace, so only the end counts.
func isDeviceFile(path string, d Device) bool {
	for _, file := range []string{d.IOMMUGroup, "noiommu-" + d.IOMMUGroup, "devices/" + d.VFIODevice} {
		if strings.HasSuffix(path, "/vfio/"+file) {
			return true
		}
	}
	return false
}
