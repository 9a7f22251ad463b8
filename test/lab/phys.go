// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Phys is the site's physical network, in a network namespace of its own: a
// Linux bridge, or a switch with a VLAN. Every node is attached to it, by a
// device there that has the node's name.
type Phys struct {
	// Network is its name in the nodes' bridge mappings.
	Network string
	// Bridge is the device that has the gateway's address, and the DHCP server.
	Bridge  string
	Subnet  netip.Prefix
	Gateway netip.Addr
	// VLAN is the only tag by which nodes reach Bridge, 0 if that is by
	// untagged frames.
	VLAN int
}

func newPhys(vlan int) Phys {
	p := Phys{Network: "physnet", Bridge: "br0", Subnet: netip.MustParsePrefix("10.1.192.0/24"), VLAN: vlan}
	p.Gateway = p.Host(1)
	return p
}

// Host returns the n-th address of the subnet.
func (p Phys) Host(n byte) netip.Addr {
	a := p.Subnet.Addr().As4()
	a[3] = n
	return netip.AddrFrom4(a)
}

// newPhysNetwork makes the namespace, and the bridge if it is the kernel's.
func (l *Lab) newPhysNetwork() error {
	ns, err := newNamespace()
	if err != nil {
		return err
	}
	l.phys = ns
	if l.Phys.VLAN != 0 {
		return nil
	}
	h, err := ns.links()
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: l.Phys.Bridge}}); err != nil {
		return fmt.Errorf("add %s: %w", l.Phys.Bridge, err)
	}
	return nil
}

// startPhys starts what is on the physical network, to which the nodes have
// been attached.
func (l *Lab) startPhys(ctx context.Context) error {
	if l.Phys.VLAN != 0 {
		if err := l.startPhysSwitch(ctx); err != nil {
			return err
		}
	}
	if err := l.phys.addAddr(l.Phys.Bridge, netip.PrefixFrom(l.Phys.Gateway, l.Phys.Subnet.Bits())); err != nil {
		return err
	}
	if err := l.phys.checksumInSoftware(ctx, l.Phys.Bridge); err != nil {
		return err
	}
	return l.DHCP.Start(ctx)
}

// startPhysSwitch starts the switch of a network with a VLAN: the nodes' ports
// are trunks, the bridge device is an access port. Not every kernel's bridge
// knows of VLANs, so it is an Open vSwitch.
func (l *Lab) startPhysSwitch(ctx context.Context) error {
	const bridge = "trunk"
	config := []string{
		"add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev",
		"--", "add-port", bridge, l.Phys.Bridge, fmt.Sprint("tag=", l.Phys.VLAN),
		"--", "set", "Interface", l.Phys.Bridge, "type=internal",
	}
	for _, n := range l.Nodes {
		config = append(config, "--", "add-port", bridge, n.Name, "vlan_mode=trunk")
	}
	return l.newVswitch(l.phys, l.physDir()).start(ctx, []string{bridge}, config...)
}

func (l *Lab) physDir() string { return filepath.Join(l.Dir, "phys") }

// addAddr gives a device its address and sets it up.
func (n *namespace) addAddr(device string, addr netip.Prefix) error {
	h, err := n.links()
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	a, err := netlink.ParseAddr(addr.String())
	if err == nil {
		err = h.AddrAdd(link, a)
	}
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up with %v: %w", device, addr, err)
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

// PhysNetns returns the path of the network namespace of the physical network.
func (l *Lab) PhysNetns() string { return l.phys.path() }
