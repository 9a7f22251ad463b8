// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package vfio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// A machine is an emulated PC with an IOMMU, an SR-IOV NIC, and a second NIC at
// the other end of the first one's wire.
type machine struct {
	// qemu is the folder that test/qemu.sh has filled.
	qemu string
	// image is the file of the initial RAM disk.
	image string
	// args are arguments for the kernel and, after "--", for its init.
	args string
}

// Emulation it is even where the processor could help: the tests are to be the
// same everywhere, and a device that is there need not work.
func (m machine) command(ctx context.Context) *exec.Cmd {
	root := filepath.Join(m.qemu, "root/usr")
	cmd := exec.CommandContext(ctx, filepath.Join(m.qemu, "bin/qemu-system-x86_64"),
		"-L", root+"/share/qemu", "-L", root+"/share/seabios",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "1280",
		"-device", "intel-iommu,intremap=on",
		"-netdev", "hubport,id=nic,hubid=0", "-netdev", "hubport,id=far,hubid=0",
		"-device", "pcie-root-port,id=root,bus=pcie.0,chassis=1,slot=1",
		"-device", "igb,bus=root,netdev=nic,mac=52:54:00:aa:00:01",
		"-device", "virtio-net-pci,bus=pcie.0,netdev=far,mac=52:54:00:bb:00:01,romfile=",
		"-device", "isa-debug-exit,iobase=0xf4,iosize=1",
		"-kernel", filepath.Join(m.qemu, "vmlinuz"), "-initrd", m.image,
		"-append", "console=ttyS0 quiet panic=-1 no_timer_check intel_iommu=on "+m.args)
	// QEMU ends with the test, however that ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run runs the machine until its init ends, and returns what that has written.
// The error tells of a machine that did not run to its end, or of a status
// other than 0.
func (m machine) run(ctx context.Context, console string) (string, error) {
	out, err := os.Create(console)
	if err != nil {
		return "", err
	}
	defer out.Close()
	cmd := m.command(ctx)
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	data, readErr := os.ReadFile(console)
	log := strings.ReplaceAll(string(data), "\r\n", "\n")
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// isa-debug-exit makes status n of the guest 2n+1 of QEMU.
	var exit *exec.ExitError
	switch said := strings.Contains(log, "\nguest: exit 0\n"); {
	case errors.As(err, &exit) && exit.ExitCode() == 1 && said:
		err = nil
	case err == nil:
		err = errors.New("it ended without a status")
	}
	if err != nil {
		err = fmt.Errorf("emulated machine: %w", err)
	}
	return log, errors.Join(err, readErr)
}
