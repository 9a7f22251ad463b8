// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// podNetns is a pod's network namespace, held open. Links in it are worked on
// from outside.
type podNetns struct {
	ns.NetNS
	*netlink.Handle
}

func openNetns(path string) (*podNetns, error) {
	n, err := ns.GetNS(path)
	if err != nil {
		return nil, err
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(n.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("netlink in network namespace %s: %w", path, err), n.Close())
	}
	return &podNetns{NetNS: n, Handle: h}, nil
}

// isGone reports whether an error of openNetns says that there is no such network
// namespace.
func isGone(err error) bool {
	return errors.As(err, &ns.NSPathNotExistErr{}) || errors.As(err, &ns.NSPathNotNSErr{})
}

func (p *podNetns) Close() error {
	p.Handle.Close()
	return p.NetNS.Close()
}

// hasLink reports whether an interface of this name exists.
func (p *podNetns) hasLink(name string) (bool, error) {
	_, err := p.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	return err == nil, err
}

// hostLinkExists reports whether the node has an interface of this name.
func hostLinkExists(name string) (bool, error) {
	_, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", name, err)
	}
	return true, nil
}

// hostMAC is the MAC address of the node's end of an attachment's veth pair. It
// tells that the interface is that attachment's, whatever its name.
func hostMAC(containerID, ifname string) net.HardwareAddr {
	return podnet.DeriveMAC("host", containerID, ifname, "")
}

// addVeth makes a veth pair between the node and a pod. Both ends have their names
// and addresses from the first moment.
func addVeth(pod *podNetns, host string, hostMAC net.HardwareAddr, peer string, mac net.HardwareAddr, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = host, mtu, hostMAC
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerMTU = peer, mac, uint32(mtu)
	veth.PeerNamespace = netlink.NsFd(pod.Fd())
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("make veth pair %s and %s in %s: %w", host, peer, pod.Path(), err)
	}
	return nil
}

// setUp sets an interface up.
func setUp(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set up interface %s: %w", name, err)
	}
	return nil
}

// addrGenNone keeps the kernel from giving an interface an IPv6 address of its own
// (linux/if_link.h, IN6_ADDR_GEN_MODE_NONE).
const addrGenNone = 1

// setUpInPod sets up the pod's interface. In the way to a guest it gets no address
// at all: by its MAC address it would get the guest's.
func (a *adding) setUpInPod() error {
	if a.course.tenure != kept {
		link, err := a.netns.LinkByName(a.IfName)
		if err == nil {
			err = a.netns.LinkSetIP6AddrGenMode(link, addrGenNone)
		}
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // without IPv6 there is nothing to turn off
			return fmt.Errorf("turn off IPv6 on interface %s: %w", a.IfName, err)
		}
	}
	return setUp(a.netns.Handle, a.IfName)
}

// hostVethExists reports whether the node's end of an attachment's veth pair is
// there.
func hostVethExists(a attachment) (bool, error) {
	link, err := netlink.LinkByName(a.HostIfName)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", a.HostIfName, err)
	}
	return link.Attrs().HardwareAddr.String() == hostMAC(a.ContainerID, a.IfName).String(), nil
}

// deleteVeth deletes the veth pair whose end on the node has this name and MAC
// address. Another interface of that name is left alone.
func deleteVeth(name string, mac net.HardwareAddr) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil && link.Attrs().HardwareAddr.String() != mac.String() {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

// computeChecksums has the pod's kernel fill in the checksums of what the pod
// sends. Open vSwitch's userspace datapath forwards frames as they are, and the
// far side would drop those that were left to a NIC to complete.
func computeChecksums(pod *podNetns, ifname string) error {
	return pod.Do(func(ns.NetNS) error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("ethtool: %w", err)
		}
		defer e.Close()
		if err := e.Change(ifname, map[string]bool{"tx-checksum-ip-generic": false}); err != nil {
			return fmt.Errorf("turn off tx checksum offload of %s: %w", ifname, err)
		}
		return nil
	})
}
