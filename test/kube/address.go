// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// nodeDevice is the device by which a node reaches the control plane.
const nodeDevice = "kube0"

// takeAddress puts an address that no other control plane has on the loopback
// device: the first of a /24 whose other addresses are for nodes.
func takeAddress() (netip.Addr, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return netip.Addr{}, err
	}
	for i := range 256 {
		address := netip.AddrFrom4([4]byte{172, 30, byte(i), 1})
		err := netlink.AddrAdd(lo, hostAddr(address))
		if err == nil {
			return address, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return netip.Addr{}, fmt.Errorf("add %v to lo: %w", address, err)
		}
	}
	return netip.Addr{}, errors.New("all 256 addresses for control planes are in use")
}

// giveAddress undoes takeAddress.
func giveAddress(address netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.AddrDel(lo, hostAddr(address))
	}
	if err != nil {
		return fmt.Errorf("remove %v from lo: %w", address, err)
	}
	return nil
}

func hostAddr(address netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: netlink.NewIPNet(address.AsSlice())}
}

// Connect gives a node of a lab a way to the control plane: a device kube0 with
// a peer in this process's network namespace. A node can be connected to one
// control plane.
func (c *ControlPlane) Connect(ctx context.Context, n *lab.Node) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := len(c.devices) + 2
	if number > 254 {
		return fmt.Errorf("connect %s: the control plane has 253 nodes already", n.Name)
	}
	near, far := c.address, c.address.As4()
	far[3] = byte(number)
	device := fmt.Sprintf("kube%d.%d", far[2], number)
	// The node's end is added first, since only a command gets into a node.
	if err := runIP(ctx, n, "link", "add", nodeDevice, "type", "veth", "peer", "name", device, "netns", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	c.devices = append(c.devices, device)
	ours, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	local, peer := hostAddr(near), hostAddr(netip.AddrFrom4(far))
	local.Peer = peer.IPNet
	if err := netlink.AddrAdd(ours, local); err != nil {
		return fmt.Errorf("add %v to %s: %w", local, device, err)
	}
	if err := netlink.LinkSetUp(ours); err != nil {
		return fmt.Errorf("set %s up: %w", device, err)
	}
	if err := runIP(ctx, n, "link", "set", nodeDevice, "up"); err != nil {
		return err
	}
	return runIP(ctx, n, "address", "add", peer.IP.String(), "peer", near.String(), "dev", nodeDevice)
}

// disconnect removes the devices of Connect. One whose node is gone is gone too.
func disconnect(devices []string) error {
	var errs []error
	for _, name := range devices {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		gone := errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV)
		if err != nil && !gone {
			errs = append(errs, fmt.Errorf("delete %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// runIP runs ip(8) in a node.
func runIP(ctx context.Context, n *lab.Node, args ...string) error {
	cmd := n.Command(ctx, "ip", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %v: %w: %s", n.Name, cmd.Args, err, out)
	}
	return nil
}
