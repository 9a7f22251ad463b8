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

// hostPIDs is the name of the kernel's first process-id namespace, the host's: its
// inode never changes (PROC_PID_INIT_INO in linux/proc_ns.h).
const hostPIDs = "pid:[4026531836]"

// Unused fails if a process has the device open, as the virtual machine does that it
// is passed to, and if Config.Proc doesn't show all processes.
func (h *Handoffs) Unused(pci string) error {
	d, err := h.device(pci)
	if err == nil {
		err = h.checkUnused(d)
	}
	if err != nil {
		return fmt.Errorf("PCI device %q: %w", pci, err)
	}
	return nil
}

// checkUnused fails if a process has the device open, by its IOMMU group or by
// itself. A group that is open is in use even if this device of it isn't: the
// kernel binds none of a group's devices to a NIC driver then.
func (h *Handoffs) checkUnused(d Device) error {
	if err := h.checkProc(); err != nil {
		return err
	}
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

// checkProc fails if a device can be open in a process that can't be seen, as it can
// from a container without the host's process ids.
func (h *Handoffs) checkProc() error {
	var pids string
	if err := readLink(filepath.Join(h.cfg.Proc, "1/ns/pid"), &pids); err != nil {
		return fmt.Errorf("look for processes that have it open: %w", err)
	}
	if pids != hostPIDs {
		return fmt.Errorf("who has it open can't be seen: %s shows the processes of namespace %q, not the host's, %s", h.cfg.Proc, pids, hostPIDs)
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
