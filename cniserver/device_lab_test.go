// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package cniserver

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestMACNotGivenBack takes the interface of a device back from a pod that is gone.
// Its physical function lets nobody set an address: neither that of before, nor any.
func TestMACNotGivenBack(t *testing.T) {
	const pci = "0000:3b:10.2"
	// The thread has the network namespace, and ends with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = transitName(pci)
	pf := netlink.NewVeth(attrs)
	pf.PeerName = "pf0"
	if err := netlink.LinkAdd(pf); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s := &Server{log: slog.New(slog.NewTextHandler(&log, nil))}
	a := attachment{
		Netns: t.TempDir() + "/gone", IfName: "net1", MAC: "02:00:00:00:00:01",
		Device: &device{PCI: pci, PF: "pf0", Netdev: "eth7", MAC: "02:00:00:00:00:99", AdminMAC: "00:00:00:00:00:00", MTU: 1400},
	}
	if err := s.reclaim(a); err != nil {
		t.Errorf("the device is not taken back: %v", err)
	}
	link, err := netlink.LinkByName("eth7")
	if err != nil {
		t.Fatal(err)
	}
	if got := link.Attrs(); got.HardwareAddr.String() != a.Device.MAC || got.MTU != a.Device.MTU {
		t.Errorf("the interface has %s and MTU %d", got.HardwareAddr, got.MTU)
	}
	if !strings.Contains(log.String(), pci) {
		t.Errorf("log: %s", log.String())
	}
}
