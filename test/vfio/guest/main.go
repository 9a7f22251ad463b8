// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command guest is the init of an emulated machine: it sets the machine up,
// runs the test binaries in /tests, in the order of their names and with its own
// arguments, and ends the machine. The machine's exit status is 0 if all have
// passed, and so says the last line on the console.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/vfio/card"
)

// vfs is how many virtual functions the machine's SR-IOV NIC has.
const vfs = 2

// exitPort is the I/O port of QEMU's device isa-debug-exit: a write ends QEMU.
const exitPort = 0xf4

func main() {
	err := run(os.Args[1:])
	status := byte(0)
	if err != nil {
		fmt.Println("guest:", err)
		status = 1
	}
	fmt.Printf("guest: exit %d\n", status)
	if err := exit(status); err != nil {
		fmt.Println("guest:", err)
	}
	// The kernel panics when its init ends, and the machine with it.
}

func run(args []string) error {
	since := time.Now()
	if err := setUp(); err != nil {
		return err
	}
	fmt.Printf("guest: set up in %v, %v after the machine's start\n", time.Since(since), uptime())
	tests, err := filepath.Glob("/tests/*")
	if err != nil {
		return err
	}
	var errs []error
	for _, test := range tests {
		cmd := exec.Command(test, args...)
		cmd.Dir = "/tmp"
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", test, err))
		}
		fmt.Printf("guest: %s ended %v after the machine's start\n", test, uptime())
	}
	return errors.Join(errs...)
}

func setUp() error {
	for _, m := range []struct{ fstype, target string }{
		{"proc", "/proc"}, {"proc", card.Proc}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fstype, m.target, m.fstype, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := os.WriteFile(card.Netns, nil, 0o644); err != nil {
		return err
	}
	if err := unix.Mount("/proc/self/ns/net", card.Netns, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", card.Netns, err)
	}
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	if err := card.SetUp(vfs); err != nil {
		return fmt.Errorf("set up the SR-IOV NIC: %w", err)
	}
	return nil
}

func loadModules(folder string) error {
	order, err := os.ReadFile(filepath.Join(folder, "order"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		if err := loadModule(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

func loadModule(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// exit ends the machine. It does not return unless that fails.
func exit(status byte) error {
	port, err := os.OpenFile("/dev/port", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = port.WriteAt([]byte{status}, exitPort)
	return err
}

// uptime is how long the kernel has been running.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano()).Round(time.Millisecond)
}
