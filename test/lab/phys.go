// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/vishvananda/netlink"
)

// Phys is the site's physical network: a Linux bridge in a network namespace of
// its own. Every node is attached to it.
type Phys struct {
	// Network is its name in the nodes' bridge mappings.
	Network string
	// Bridge is the device that has the gateway's address.
	Bridge  string
	Subnet  netip.Prefix
	Gateway netip.Addr
}

func newPhys() Phys {
	p := Phys{Network: "physnet", Bridge: "br0", Subnet: netip.MustParsePrefix("10.1.192.0/24")}
	p.Gateway = p.host(1)
	return p
}

// host returns the n-th address of the subnet.
func (p Phys) host(n byte) netip.Addr {
	a := p.Subnet.Addr().As4()
	a[3] = n
	return netip.AddrFrom4(a)
}

func (l *Lab) startPhys(ctx context.Context) error {
	ns, err := newNamespace()
	if err != nil {
		return err
	}
	l.phys = ns
	h, err := ns.links()
	if err != nil {
		return err
	}
	defer h.Close()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: l.Phys.Bridge}}
	if err := h.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add %s: %w", l.Phys.Bridge, err)
	}
	if err := addAddr(h, bridge, netip.PrefixFrom(l.Phys.Gateway, l.Phys.Subnet.Bits())); err != nil {
		return err
	}
	return ns.checksumInSoftware(ctx, l.Phys.Bridge)
}

// addAddr gives a device its address and sets it up.
func addAddr(h *netlink.Handle, link netlink.Link, addr netip.Prefix) error {
	a, err := netlink.ParseAddr(addr.String())
	if err == nil {
		err = h.AddrAdd(link, a)
	}
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up with %v: %w", link.Attrs().Name, addr, err)
	}
	return nil
}

// checksumInSoftware turns the transmit checksum offload of a device off.
// Frames between veth ends never get a checksum otherwise, and the userspace
// datapath passes them on without it.
func (n *namespace) checksumInSoftware(ctx context.Context, device string) error {
	_, err := output(n.command(ctx, "ethtool", "-K", device, "tx", "off"))
	return err
}

// InPhys is a command that runs in the network namespace of the physical
// network, at the root directory. It ends with ctx or with the lab.
func (l *Lab) InPhys(ctx context.Context, name string, args ...string) *exec.Cmd {
	return l.phys.command(ctx, name, args...)
}
