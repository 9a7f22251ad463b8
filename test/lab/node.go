// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Where a node differs from the other nodes of the machine.
const (
	cniServerDir = "/run/ovn-kubernetes"
	cniDir       = "/run/cni"
	ovsRunDir    = "/run/openvswitch"
)

// nodeRunDirs are the mount points for a node's own directories.
var nodeRunDirs = []string{cniServerDir, cniDir, ovsRunDir}

// uplink is the device that a node reaches the physical network by, a port of
// br-ex.
const uplink = "phys0"

// A Node is a machine of the cluster, in a network and mount namespace of its
// own: Open vSwitch with the bridges br-int and br-ex, and ovn-controller.
type Node struct {
	// Name is also the node's host name in OVS.
	Name string
	// Dir is the run directory of OVS and ovn-controller. The node's own
	// /run/ovn-kubernetes and /run/cni are the directories of these names
	// below it.
	Dir string
	// OVSDB is the endpoint of the Open_vSwitch database, "unix:PATH".
	OVSDB string
	// Chassis is the name of the node's row in the southbound database.
	Chassis string

	lab   *Lab
	ns    *namespace
	ovs   *vswitch
	encap netip.Prefix

	controller *daemon
}

// newNode makes the i-th node's namespaces, of which netns can be one that is
// there, and attaches it to the physical network.
func (l *Lab) newNode(i int, netns string) (_ *Node, err error) {
	name := fmt.Sprintf("node%d", i)
	dir := filepath.Join(l.Dir, name)
	n := &Node{
		Name:    name,
		Dir:     dir,
		Chassis: name,
		lab:     l,
		encap:   netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 31, 0, byte(i)}), 24),
	}
	binds := [][2]string{{dir, ovsRunDir}}
	for _, target := range []string{cniServerDir, cniDir} {
		source := filepath.Join(dir, filepath.Base(target))
		if err := os.MkdirAll(source, 0o755); err != nil {
			return nil, err
		}
		binds = append(binds, [2]string{source, target})
	}
	if n.ns, err = newNodeNamespace(binds, netns); err != nil {
		return nil, err
	}
	n.ovs = l.newVswitch(n.ns, dir)
	n.OVSDB = n.ovs.db.endpoint()
	if err := n.plug(); err != nil {
		n.ns.close()
		return nil, err
	}
	return n, nil
}

// plug connects the node with the physical network.
func (n *Node) plug() error {
	phys, err := n.lab.phys.links()
	if err != nil {
		return err
	}
	defer phys.Close()
	attrs := netlink.LinkAttrs{Name: n.Name, Flags: net.FlagUp}
	if n.lab.Phys.VLAN == 0 {
		bridge, err := phys.LinkByName(n.lab.Phys.Bridge)
		if err != nil {
			return fmt.Errorf("find %s: %w", n.lab.Phys.Bridge, err)
		}
		attrs.MasterIndex = bridge.Attrs().Index
	}
	veth := &netlink.Veth{
		LinkAttrs:     attrs,
		PeerName:      uplink,
		PeerNamespace: netlink.NsFd(n.ns.net.Fd()),
	}
	if err := phys.LinkAdd(veth); err != nil {
		return fmt.Errorf("add a veth to the physical network: %w", err)
	}
	inside, err := n.ns.links()
	if err != nil {
		return err
	}
	defer inside.Close()
	peer, err := inside.LinkByName(uplink)
	if err == nil {
		err = inside.LinkSetUp(peer)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", uplink, err)
	}
	return nil
}

// startOVS starts Open vSwitch and configures it for OVN.
func (n *Node) startOVS(ctx context.Context) error {
	if err := n.lab.phys.checksumInSoftware(ctx, n.Name); err != nil {
		return err
	}
	if err := n.ns.checksumInSoftware(ctx, uplink); err != nil {
		return err
	}
	if err := n.ovs.start(ctx, []string{"br-ex", "br-int"},
		"set", "Open_vSwitch", ".",
		"external_ids:system-id="+n.Chassis,
		"external_ids:hostname="+n.Name,
		"external_ids:ovn-remote="+n.lab.SB,
		"external_ids:ovn-encap-type=geneve",
		"external_ids:ovn-encap-ip="+n.encap.Addr().String(),
		"external_ids:ovn-bridge-datapath-type=netdev",
		"external_ids:ovn-bridge-mappings="+n.lab.Phys.Network+":br-ex",
		"external_ids:ovn-monitor-all=true",
		"--", "add-br", "br-ex",
		"--", "set", "Bridge", "br-ex", "datapath_type=netdev",
		"--", "add-port", "br-ex", uplink,
		"--", "add-br", "br-int",
		"--", "set", "Bridge", "br-int", "datapath_type=netdev", "fail_mode=secure", "other_config:disable-in-band=true",
	); err != nil {
		return err
	}
	return n.ns.addAddr("br-ex", n.encap)
}

// StartController starts ovn-controller. The southbound database and both
// bridges must be listening, since a second try is a second later. The lab has
// done so at first.
func (n *Node) StartController() (err error) {
	n.controller, err = n.ovs.spawn("ovn-controller")
	return err
}

// StopController ends ovn-controller as a crash does: the flows stay, and what it
// has written into the southbound database.
func (n *Node) StopController() error {
	n.controller.signal(syscall.SIGKILL)
	return n.controller.wait()
}

// Env is what a shell needs so that ovs-vsctl, ovs-ofctl and ovs-appctl are of
// the lab's version and find the node: NAME=VALUE, as in os.Environ.
func (n *Node) Env() []string { return n.ovs.env() }

// Command is a command that runs in the node, at the root directory, with Env
// in its environment. Its process is a child of this one and ends with ctx or
// with the lab.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return n.ovs.command(ctx, name, args...)
}

// Vsctl runs ovs-vsctl on the node's database and returns its output.
func (n *Node) Vsctl(ctx context.Context, args ...string) (string, error) {
	return n.ovs.vsctl(ctx, args...)
}

// listTries is how often to list what changes meanwhile.
const listTries = 10

// Links returns the names of all devices in the node, sorted.
func (n *Node) Links() ([]string, error) {
	h, err := n.ns.links()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	defer h.Close()
	var links []netlink.Link
	for range listTries {
		// The kernel tells when a device came or went while it listed.
		if links, err = h.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list devices of %s: %w", n.Name, err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return names, nil
}
