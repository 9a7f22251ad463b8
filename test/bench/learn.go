// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

const (
	// A guest's address may change six times a minute.
	learnGuests  = 10
	learnChanges = 5
)

// learning is an installation whose guests' addresses are learned.
type learning struct {
	*installation
	nb      *northbound
	network site.Network
	// got is from an ACK to the address in the port, heard is from a gratuitous ARP
	// that OVN hears to that, and bare is a change of a bare port.
	got, heard, bare times.Times
}

// learn measures how long OVN's database takes to follow a guest.
func (b *bench) learn(ctx context.Context) (err error) {
	progress("starting etcd, kube-apiserver, OVN, a node and a DHCP server")
	s, err := b.install(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	nb, err := dialNorthbound(ctx, s.Lab.NB)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nb.close()) }()
	l := &learning{installation: s, nb: nb, network: s.LAN()}
	if err := l.measure(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs())
	}
	t := table{title: "Guests that change their address: the Kubernetes API, one node, OVN, a DHCP server"}
	t.add(
		latency("ACK → address in the port", l.got, "bare port changed", l.bare).against("≤ 150 ms", ""),
		latency("gratuitous ARP → address in the port", l.heard, "bare port changed", l.bare).against("≤ 150 ms", ""),
	)
	return t.print()
}

func (l *learning) measure(ctx context.Context) error {
	l.network.Config["learn"] = podnet.LearnAll
	if err := l.PutNetwork(l.network); err != nil {
		return err
	}
	if _, err := l.nb.ports.await(ctx, podnet.LocalnetPortName("lan"), logicalPort.exists); err != nil {
		return err
	}
	if err := l.nb.find(ctx, podnet.SwitchName("lan")); err != nil {
		return err
	}
	progress("%d changes by DHCP, and as many by ARP", learnGuests*learnChanges)
	for i := range learnGuests {
		g, err := l.guest(ctx, fmt.Sprint("dhcp", i))
		if err != nil {
			return err
		}
		if err := l.lease(ctx, g); err != nil {
			return err
		}
		if g, err = l.guest(ctx, fmt.Sprint("arp", i)); err != nil {
			return err
		}
		if err := l.choose(ctx, g, i); err != nil {
			return err
		}
	}
	return nil
}

// benchGuest is the guest of a virtual machine.
type benchGuest struct {
	*lab.Guest
	port   string // OVN's name of it
	device string // the node's end of it
}

// has reports whether a port has the guest's MAC address and this one.
func (g benchGuest) has(addr netip.Addr) func(logicalPort) bool {
	return func(p logicalPort) bool { return p.has(g.MAC.String() + " " + addr.String()) }
}

// guest adds a virtual machine, whose guest has no client.
func (l *learning) guest(ctx context.Context, name string) (g benchGuest, err error) {
	pod := l.Pod("default", name, 0, name)
	pod.Labels = map[string]string{"vm.kubevirt.io/name": name}
	if err := l.PutPod(pod); err != nil {
		return g, err
	}
	netns := "sandbox-" + name
	if _, err := l.Lab.AddNetns(netns); err != nil {
		return g, err
	}
	r, err := l.CNI(ctx, 0, l.Attach("ADD", pod, l.network, netns))
	if err != nil {
		return g, err
	}
	if len(r.Interfaces) != 2 {
		return g, fmt.Errorf("result without both ends of a pair: %v", r)
	}
	mac, err := net.ParseMAC(r.Interfaces[1].Mac)
	if err != nil {
		return g, err
	}
	g.device = r.Interfaces[0].Name
	g.port = podnet.PortName("default/lan", pod.Namespace, pod.Name)
	if g.Guest, err = l.Lab.AddGuest(ctx, netns, "net1", mac, name); err != nil {
		return g, err
	}
	return g, l.Lab.InNetns(ctx, g.Netns, "ip", "link", "set", "eth0", "up").Run()
}

// lease has a guest get one address after the other, each as another client.
func (l *learning) lease(ctx context.Context, g benchGuest) (err error) {
	link, err := dhcp.OpenLink(l.Lab.NetnsPath(g.Netns), "eth0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, link.Close()) }()
	for n := range learnChanges {
		cfg := dhcp.Config{HardwareAddr: g.MAC, ClientID: []byte{255, g.MAC[4], g.MAC[5], byte(n)}}
		lease, err := dhcp.Acquire(ctx, link, cfg)
		if err != nil {
			return err
		}
		acked := time.Now()
		seen, err := l.nb.ports.await(ctx, g.port, g.has(lease.Addr.Addr()))
		if err != nil {
			return err
		}
		l.got = append(l.got, seen.at.Sub(acked))
		if err := l.yardstick(ctx); err != nil {
			return err
		}
	}
	return nil
}

// choose has the i-th guest choose one address after the other. Its port is open at
// first; later it is held to the former address, until the guest announces another. That
// one is not measured: Open vSwitch drops what it has just dropped for a while more.
func (l *learning) choose(ctx context.Context, g benchGuest, i int) error {
	var conn *packet.Conn
	err := ns.WithNetNSPath(l.Lab.NetnsPath(g.Netns), func(ns.NetNS) error {
		ifi, err := net.InterfaceByName("eth0")
		if err == nil {
			conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_ARP, nil)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	for n := range learnChanges {
		chosen := l.Lab.Phys.Host(byte(2 + i*learnChanges + n))
		if n > 0 {
			if err := announce(conn, g.MAC, l.Lab.Phys.Host(250)); err != nil {
				return err
			}
		}
		if _, err := l.Lab.Nbctl(ctx, "wait-until", "Logical_Switch_Port", g.port, fmt.Sprintf("port_security=%q", g.MAC)); err != nil {
			return err
		}
		if _, err := l.Lab.Nbctl(ctx, "--wait=hv", "sync"); err != nil {
			return err
		}
		took, err := l.heardOf(ctx, conn, g, chosen)
		if err != nil {
			return err
		}
		l.heard = append(l.heard, took)
		if err := l.yardstick(ctx); err != nil {
			return err
		}
		// When the node knows of it too, the next one opens the port again.
		if _, err := l.Lab.Nodes[0].Vsctl(ctx, "wait-until", "Interface", g.device, fmt.Sprintf("external_ids:ip_addresses=%q", netip.PrefixFrom(chosen, l.Lab.Phys.Subnet.Bits()))); err != nil {
			return err
		}
	}
	return nil
}

// heardOf announces an address, again every second as guests do that get no answer, and
// returns how long after the first time the port has it.
func (l *learning) heardOf(ctx context.Context, conn *packet.Conn, g benchGuest, chosen netip.Addr) (time.Duration, error) {
	for began := time.Now(); ; {
		if err := announce(conn, g.MAC, chosen); err != nil {
			return 0, err
		}
		second, cancel := context.WithTimeout(ctx, time.Second)
		seen, err := l.nb.ports.await(second, g.port, g.has(chosen))
		cancel()
		if err == nil || ctx.Err() != nil || time.Since(began) > time.Minute {
			return seen.at.Sub(began), err
		}
	}
}

// announce sends a gratuitous ARP request.
func announce(conn *packet.Conn, mac net.HardwareAddr, addr netip.Addr) error {
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	frame := slices.Concat(broadcast, mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}, mac, addr.AsSlice(), make([]byte, 6), addr.AsSlice())
	_, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: broadcast})
	return err
}

// yardstick measures a change of a bare port.
func (l *learning) yardstick(ctx context.Context) error {
	const mac = "0a:58:00:00:00:01"
	if _, err := l.nb.insert(ctx, bare, mac); err != nil {
		return err
	}
	changed, err := l.nb.update(ctx, bare, mac+" 192.0.2.1")
	if err != nil {
		return err
	}
	l.bare = append(l.bare, changed)
	_, err = l.nb.remove(ctx, bare, logicalPort.gone)
	return err
}
