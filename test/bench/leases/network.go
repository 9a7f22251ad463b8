// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	bridgeName = "br0"
	bridgeAddr = "10.66.0.1"
	podDevice  = "eth0"
	netnsDir   = "/run/netns"
	// changeTime is how long links may take to go up or down.
	changeTime = 10 * time.Second
)

// network is a bridge in this network namespace, with all pods on it.
type network struct {
	pods []*pod
}

// pod is a network namespace with an interface on the bridge.
type pod struct {
	name, netns string
	port        string // the bridge's end of the wire
	hw          net.HardwareAddr
	links       *netlink.Handle
	link        netlink.Link
}

// newNetwork makes a bridge and n pods, whose interfaces are down. What it makes ends
// with the process: lab.Isolate sees to that.
func newNetwork(n int) (*network, error) {
	// Nothing is on the wires but what is measured.
	if err := withoutIPv6(); err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"link", "add", bridgeName, "up", "type", "bridge"},
		{"addr", "add", bridgeAddr + "/16", "dev", bridgeName},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return nil, err
	}
	net := &network{}
	for i := range n {
		p := newPod(i)
		if err := p.make(bridge.Attrs().Index); err != nil {
			return nil, fmt.Errorf("making pod %s: %w", p.name, err)
		}
		net.pods = append(net.pods, p)
	}
	return net, nil
}

// newPod names what is the i-th pod's.
func newPod(i int) *pod {
	name := fmt.Sprintf("p%d", i)
	return &pod{
		name: name, netns: filepath.Join(netnsDir, name), port: fmt.Sprintf("veth%d", i),
		hw: []byte{0x02, 0, 0, 0, byte(i >> 8), byte(i)},
	}
}

func (p *pod) make(bridge int) error {
	space, err := newNetns(p.name)
	if err != nil {
		return err
	}
	defer space.Close()
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: p.port, MasterIndex: bridge, Flags: net.FlagUp},
		PeerName:  podDevice, PeerHardwareAddr: p.hw, PeerNamespace: netlink.NsFd(space),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding %s: %w", p.port, err)
	}
	return p.open(space)
}

// open has the pod's interface within reach, by its network namespace.
func (p *pod) open(space netns.NsHandle) (err error) {
	if p.links, err = netlink.NewHandleAt(space, unix.NETLINK_ROUTE); err != nil {
		return err
	}
	p.link, err = p.links.LinkByName(podDevice)
	return err
}

// newNetns makes a named network namespace.
func newNetns(name string) (netns.NsHandle, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		return netns.None(), err
	}
	defer own.Close()
	space, err := netns.NewNamed(name)
	if err != nil {
		return netns.None(), err
	}
	return space, errors.Join(withoutIPv6(), netns.Set(own))
}

// withoutIPv6 switches IPv6 off in the calling thread's network namespace.
func withoutIPv6() error {
	for _, of := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+of+"/disable_ipv6", []byte("1"), 0); err != nil {
			return err
		}
	}
	return nil
}

// setLinks sets the interfaces of the first n pods up, or down, and all others down.
// It takes the addresses off all of them, and has this namespace forget the pods' MAC
// addresses: the kernel has room for 1024 in all.
func (n *network) setLinks(ctx context.Context, up int) error {
	for i, p := range n.pods {
		if err := p.flush(); err != nil {
			return err
		}
		set := p.links.LinkSetDown
		if i < up {
			set = p.links.LinkSetUp
		}
		if err := set(p.link); err != nil {
			return fmt.Errorf("%s of pod %s: %w", podDevice, p.name, err)
		}
	}
	for i, p := range n.pods {
		if err := p.awaitCarrier(ctx, i < up); err != nil {
			return err
		}
	}
	if out, err := exec.CommandContext(ctx, "ip", "neigh", "flush", "dev", bridgeName).CombinedOutput(); err != nil {
		return fmt.Errorf("forgetting neighbours: %w: %s", err, out)
	}
	return nil
}

func (p *pod) flush() error {
	addrs, err := p.links.AddrList(p.link, unix.AF_INET)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := p.links.AddrDel(p.link, &a); err != nil {
			return err
		}
	}
	return nil
}

// hasCarrier reports whether the interface was operational when it was last looked at.
func (p *pod) hasCarrier() bool { return p.link.Attrs().OperState == netlink.OperUp }

// awaitCarrier returns when the interface is operational, or isn't.
func (p *pod) awaitCarrier(ctx context.Context, carrier bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, changeTime, fmt.Errorf("not within %v", changeTime))
	defer cancel()
	return await(ctx, "the link of pod "+p.name, time.Millisecond, func() (bool, error) {
		link, err := p.links.LinkByIndex(p.link.Attrs().Index)
		if err != nil {
			return false, err
		}
		p.link = link
		return p.hasCarrier() == carrier, nil
	})
}

// await looks at done, each time after a pause, until it says yes or fails.
func await(ctx context.Context, what string, pause time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		yes, err := done()
		if yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
