// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package vfio

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestSetUp sets one end of a veth pair up, which has a carrier when the other
// end is up, too.
func TestSetUp(t *testing.T) {
	// The thread has the network namespace, and ends with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "vf"
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "wire"
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*pollInterval)
	defer cancel()
	if err := (Kernel{}).SetUp(ctx, "vf"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a carrier: %v", err)
	}
	peer, err := netlink.LinkByName("wire")
	if err == nil {
		err = netlink.LinkSetUp(peer)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := (Kernel{}).SetUp(ctx, "vf"); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName("vf")
	if err != nil {
		t.Fatal(err)
	}
	if flags := link.Attrs().RawFlags; flags&unix.IFF_UP == 0 || flags&unix.IFF_NOARP == 0 || flags&unix.IFF_LOWER_UP == 0 {
		t.Errorf("flags are %#x", flags)
	}
	if _, err := (Kernel{}).VFMAC("vf", 0); err == nil {
		t.Error("an interface without virtual functions has one")
	}
	if err := (Kernel{}).SetVFMAC("vf", 0, guest); err == nil {
		t.Error("an interface without virtual functions takes a MAC address for one")
	}
	if err := (Kernel{}).SetUp(ctx, "none"); err == nil {
		t.Error("an interface that doesn't exist was set up")
	}
}
