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
	"strings"
	"syscall"
)

// Names in a guest's pod, like those of KubeVirt's bridge binding, and in the guest.
const (
	guestBridge = "k6t-net1"
	guestTap    = "tap0"
	guestDevice = "eth0"
)

// A Guest is a virtual machine on a bridge in its pod's network namespace, as
// KubeVirt's bridge binding has it. It has a MAC address and a DHCP client of its own,
// busybox's udhcpc. It is an emulated machine, or only another network namespace,
// which is quicker and looks the same from the network.
type Guest struct {
	// Netns is its network namespace, for InNetns; "" for an emulated machine.
	Netns string
	MAC   net.HardwareAddr
	// ClientArgs are further arguments of its client from its next Start on, if it is a
	// network namespace.
	ClientArgs []string

	lab     *Lab
	name    string
	command func() *exec.Cmd // what runs while it is on
	process *daemon          // nil while it is off
}

// A GuestEvent is what the guest's DHCP client has told its script.
type GuestEvent struct {
	// Kind is udhcpc's word: deconfig, bound, renew, nak or leasefail.
	Kind string
	// Addr and Server are valid for bound and renew.
	Addr   netip.Prefix
	Server netip.Addr
}

// guestScript puts what the client is given on the interface, as a distribution's
// own script does, and tells of it.
const guestScript = `#!/bin/sh
case $1 in
deconfig) ip addr flush dev $interface ;;
bound|renew) ip addr replace $ip/$mask dev $interface ;;
esac
echo "guest: $1 ${ip:+$ip/$mask} $serverid"
`

// AddGuest makes a guest, which is off, in a pod whose network interface is ifname.
// It is a network namespace.
func (l *Lab) AddGuest(ctx context.Context, pod, ifname string, mac net.HardwareAddr, hostName string) (*Guest, error) {
	g := &Guest{Netns: "guest-" + pod, MAC: mac, lab: l, name: "guest-" + pod}
	if _, err := l.AddNetns(g.Netns); err != nil {
		return nil, err
	}
	script := filepath.Join(l.Dir, g.name+".sh")
	if err := os.WriteFile(script, []byte(guestScript), 0o755); err != nil {
		return nil, err
	}
	g.command = func() *exec.Cmd {
		args := []string{"udhcpc", "-f", "-i", guestDevice, "-s", script, "-x", "hostname:" + hostName}
		return l.InNetns(context.Background(), g.Netns, "busybox", append(args, g.ClientArgs...)...)
	}
	return g, errors.Join(
		l.bridgeGuest(ctx, pod, ifname, mac, "link", "add", guestTap, "type", "veth", "peer", "name", guestDevice, "address", mac.String(), "netns", l.netnsName(g.Netns)),
		run(l.InNetns(ctx, g.Netns, "ethtool", "-K", guestDevice, "tx", "off")),
	)
}

// bridgeGuest makes a pod's interface a port of a bridge, as is the guest's tap, which
// ip-link(8) adds with the arguments given. The interface has another MAC address
// then: a bridge keeps to itself what is for the address of one of its ports.
func (l *Lab) bridgeGuest(ctx context.Context, pod, ifname string, mac net.HardwareAddr, addTap ...string) error {
	other := append(net.HardwareAddr{}, mac...)
	other[5] ^= 0xff
	for _, args := range [][]string{
		{"link", "set", ifname, "down"},
		{"link", "set", ifname, "address", other.String()},
		{"link", "add", guestBridge, "type", "bridge", "forward_delay", "0", "stp_state", "0"},
		addTap,
		{"link", "set", ifname, "master", guestBridge},
		{"link", "set", guestTap, "master", guestBridge},
		{"link", "set", ifname, "up"},
		{"link", "set", guestTap, "up"},
		{"link", "set", guestBridge, "up"},
	} {
		if err := run(l.InNetns(ctx, pod, "ip", args...)); err != nil {
			return fmt.Errorf("make a guest in pod %s: %w", pod, err)
		}
	}
	return nil
}

func run(cmd *exec.Cmd) error {
	_, err := output(cmd)
	return err
}

// Start switches the guest on: its interface comes up, and its client asks for an
// address, which Await waits for.
func (g *Guest) Start(ctx context.Context) (err error) {
	if g.process != nil {
		return errors.New("start guest: it is running")
	}
	if g.Netns != "" {
		if err := run(g.lab.InNetns(ctx, g.Netns, "ip", "link", "set", guestDevice, "up")); err != nil {
			return err
		}
	}
	g.process, err = g.lab.spawn(g.lab.Dir, g.name, g.command())
	return err
}

// Stop switches the guest off at once, without a RELEASE.
func (g *Guest) Stop(ctx context.Context) error {
	if g.process == nil {
		return nil
	}
	g.process.signal(syscall.SIGKILL)
	if err := g.process.wait(); err != nil {
		return err
	}
	g.process = nil
	if g.Netns == "" {
		return nil
	}
	return errors.Join(
		run(g.lab.InNetns(ctx, g.Netns, "ip", "addr", "flush", "dev", guestDevice)),
		run(g.lab.InNetns(ctx, g.Netns, "ip", "link", "set", guestDevice, "down")),
	)
}

// Renew has the client of a guest that is a network namespace renew its lease now,
// and not at its time.
func (g *Guest) Renew() error { return g.process.process.Signal(syscall.SIGUSR1) }

// Log is the path of what the guest's client has said, or the machine's console.
func (g *Guest) Log() string { return filepath.Join(g.lab.Dir, g.name+".log") }

// Events are what the guest's client has told so far.
func (g *Guest) Events() ([]GuestEvent, error) {
	data, err := os.ReadFile(g.Log())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return parseGuestEvents(string(data))
}

// parseGuestEvents finds what the script has told in the log. The last line may not
// be whole yet.
func parseGuestEvents(log string) ([]GuestEvent, error) {
	var events []GuestEvent
	for line := range strings.Lines(log) {
		told, ok := strings.CutPrefix(line, "guest: ")
		fields := strings.Fields(told)
		if !ok || !strings.HasSuffix(line, "\n") || len(fields) == 0 {
			continue
		}
		e := GuestEvent{Kind: fields[0]}
		if e.Kind == "bound" || e.Kind == "renew" {
			if len(fields) != 3 {
				return nil, fmt.Errorf("event %q of a guest has no address and server", line)
			}
			var err error
			if e.Addr, err = netip.ParsePrefix(fields[1]); err == nil {
				e.Server, err = netip.ParseAddr(fields[2])
			}
			if err != nil {
				return nil, fmt.Errorf("event %q of a guest: %w", line, err)
			}
		}
		events = append(events, e)
	}
	return events, nil
}

// Await waits for the n-th event of a kind, from 1, since the guest was made.
func (g *Guest) Await(ctx context.Context, kind string, n int) (GuestEvent, error) {
	var found GuestEvent
	var failure error
	err := await(ctx, fmt.Sprintf("%s number %d of %s", kind, n, g.name), func() bool {
		events, err := g.Events()
		if failure = err; err != nil {
			return true
		}
		seen := 0
		for _, e := range events {
			if e.Kind == kind {
				seen++
			}
			if seen == n {
				found = e
				return true
			}
		}
		return false
	})
	return found, errors.Join(failure, err)
}
