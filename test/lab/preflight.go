// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// systemPrograms are what a lab runs beside OVN and OVS.
var systemPrograms = [...]string{"dnsmasq", "ethtool", "ip", "nsenter"}

// Preflight returns an error of one line if this machine can't run a lab with
// the system's OVN: a right, programs, or a kernel feature that is missing.
func Preflight() error {
	system, err := newRelease("")
	if err != nil {
		return err
	}
	return preflight(system)
}

func preflight(r release) error {
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root")
	}
	var missing []string
	for _, p := range systemPrograms {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	if missing != nil {
		return fmt.Errorf("a lab needs %s (test/packages.sh installs what is missing)", strings.Join(missing, ", "))
	}
	if missing := r.missing(); missing != nil {
		return fmt.Errorf("a lab needs %s (%s installs what is missing)", strings.Join(missing, ", "), r.install)
	}
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("a lab needs the kernel's tun device: %w", err)
	}
	tun.Close()
	err = inNewNamespaces(unix.CLONE_NEWNET|unix.CLONE_NEWNS, func() error {
		for _, l := range []netlink.Link{
			&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"},
			&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}},
		} {
			if err := netlink.LinkAdd(l); err != nil {
				return fmt.Errorf("add a %s device: %w", l.Type(), err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("a lab needs the kernel's network namespaces, veth and bridge: %w", err)
	}
	return nil
}
