// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// pollInterval is the time between two looks at what the kernel does by itself.
const pollInterval = 10 * time.Millisecond

// Netlink is what a hand-off does by netlink, in the daemon's network namespace.
type Netlink interface {
	// VFMAC returns the MAC address that was set for a virtual function through
	// the interface of its physical one; all zeros if there is none.
	VFMAC(pf string, vf int) (net.HardwareAddr, error)
	// SetVFMAC sets it.
	SetVFMAC(pf string, vf int, mac net.HardwareAddr) error
	// SetUp sets an interface up, so that the host doesn't answer ARP on it, and
	// returns when it has a carrier.
	SetUp(ctx context.Context, netdev string) error
}

// Kernel is the real Netlink, for which it needs CAP_NET_ADMIN.
type Kernel struct{}

// VFMAC implements Netlink.
func (Kernel) VFMAC(pf string, vf int) (net.HardwareAddr, error) {
	link, err := netlink.LinkByName(pf)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", pf, err)
	}
	for _, info := range link.Attrs().Vfs {
		if info.ID == vf {
			return info.Mac, nil
		}
	}
	return nil, fmt.Errorf("interface %s has no virtual function %d", pf, vf)
}

// SetVFMAC implements Netlink.
func (Kernel) SetVFMAC(pf string, vf int, mac net.HardwareAddr) error {
	link, err := netlink.LinkByName(pf)
	if err == nil {
		err = netlink.LinkSetVfHardwareAddr(link, vf, mac)
	}
	if err != nil {
		return fmt.Errorf("interface %s, virtual function %d: %w", pf, vf, err)
	}
	return nil
}

// SetUp implements Netlink.
func (Kernel) SetUp(ctx context.Context, netdev string) error {
	link, err := netlink.LinkByName(netdev)
	if err == nil {
		err = errors.Join(netlink.LinkSetARPOff(link), netlink.LinkSetUp(link))
	}
	if err != nil {
		return fmt.Errorf("set up interface %s: %w", netdev, err)
	}
	return poll(ctx, func() error {
		link, err := netlink.LinkByIndex(link.Attrs().Index)
		if err != nil {
			return fmt.Errorf("interface %s: %w", netdev, err)
		}
		if link.Attrs().RawFlags&unix.IFF_LOWER_UP == 0 {
			return fmt.Errorf("interface %s has no carrier", netdev)
		}
		return nil
	})
}

// poll looks until there is no error, and returns the last one when ctx ends.
func poll(ctx context.Context, look func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := look()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
