// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package watcher

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// network is a bridge, on which a DHCP server listens, and guests: each is a network
// namespace whose eth0 is on the bridge by a veth. The watcher watches the near ends.
type network struct {
	t       *testing.T
	dir     string
	watcher *Watcher
	// end ends Run, and returns when it has returned.
	end func()

	mu   sync.Mutex
	seen []Observation
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, dir: t.TempDir()}
	n.run("ip", "link", "add", "br0", "type", "bridge")
	t.Cleanup(func() { n.run("ip", "link", "del", "br0") })
	n.run("ip", "addr", "add", "192.0.2.2/24", "dev", "br0")
	n.run("ip", "link", "set", "br0", "up")
	var err error
	n.watcher, err = New(Config{Report: n.report, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// watch has the watcher run until the test, or n.end, ends it.
func (n *network) watch() *network {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.watcher.Run(ctx) }()
	n.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(n.end)
	return n
}

func (n *network) report(o Observation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen = append(n.seen, o)
}

// all is what was seen on a port.
func (n *network) all(key string) []Sighting {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Sighting
	for _, o := range n.seen {
		if o.Key == key {
			out = append(out, o.Seen)
		}
	}
	return out
}

// of are those of one type.
func of[T Sighting](n *network, key string) []T {
	var out []T
	for _, s := range n.all(key) {
		if s, ok := s.(T); ok {
			out = append(out, s)
		}
	}
	return out
}

// await returns when the condition holds.
func (n *network) await(what string, condition func() bool) {
	n.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.t.Fatalf("%s: not within 20 seconds; server's log:\n%s\nseen: %+v", what, n.serverLog(), n.seen[max(0, len(n.seen)-30):])
		}
	}
}

func (n *network) run(name string, args ...string) {
	n.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// guest makes the i-th guest and watches its port, which has the same key.
func (n *network) guest(i int) (key string, mac net.HardwareAddr) {
	n.t.Helper()
	key, mac = fmt.Sprintf("guest%d", i), net.HardwareAddr{0x0a, 0x58, 0, 0, 1, byte(i)}
	n.run("ip", "netns", "add", key)
	n.t.Cleanup(func() {
		n.run("ip", "-n", key, "link", "del", "eth0") // the namespace would take it along only later
		n.run("ip", "netns", "del", key)
	})
	n.plug(i)
	return key, mac
}

// plug makes a guest's interface and watches it.
func (n *network) plug(i int) {
	n.t.Helper()
	key, mac := fmt.Sprintf("guest%d", i), net.HardwareAddr{0x0a, 0x58, 0, 0, 1, byte(i)}
	n.run("ip", "link", "add", near(key), "type", "veth", "peer", "name", "eth0", "address", mac.String(), "netns", key)
	if err := n.watcher.Watch(Port{Key: key, Interface: near(key), MAC: mac}); err != nil {
		n.t.Fatal(err)
	}
	n.run("ip", "link", "set", near(key), "master", "br0", "up")
	n.run("ip", "-n", key, "link", "set", "eth0", "up")
	// The kernel starts a device's queue a moment after its carrier.
	n.await("both ends up", func() bool { return isUp(near(key)) && isUp("eth0", "-n", key) })
}

func isUp(ifname string, options ...string) bool {
	out, err := exec.Command("ip", append(options, "link", "show", ifname)...).Output()
	return err == nil && strings.Contains(string(out), "state UP")
}

// near is the host's end of a guest's interface.
func near(key string) string { return "h-" + key }

func (n *network) serverLog() string {
	b, err := os.ReadFile(filepath.Join(n.dir, "log"))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	return string(b)
}

// serve starts dnsmasq, and returns when it serves.
func (n *network) serve() {
	n.t.Helper()
	n.start("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port=0", "--interface=br0", "--bind-interfaces",
		"--user=root", "--pid-file", "--no-ping", "--dhcp-authoritative", "--log-dhcp", "--dhcp-range=192.0.2.100,192.0.2.200,255.255.255.0,1h",
		"--dhcp-option=option:router,192.0.2.1", "--dhcp-leasefile="+filepath.Join(n.dir, "leases"), "--log-facility="+filepath.Join(n.dir, "log"))
	n.await("dnsmasq serves", func() bool { return strings.Contains(n.serverLog(), "sockets bound") })
}

// start starts a program that runs until the test ends.
func (n *network) start(name string, args ...string) *os.Process {
	n.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

// client starts a guest's DHCP client, which puts its address on eth0.
func (n *network) client(key string, args ...string) *os.Process {
	n.t.Helper()
	script := filepath.Join(n.dir, "udhcpc")
	err := os.WriteFile(script, []byte("#!/bin/sh\ncase $1 in bound|renew) ip addr replace $ip/$mask dev $interface;; deconfig) ip addr flush dev $interface;; esac\n"), 0o700)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.start("ip", slices.Concat([]string{"netns", "exec", key, "busybox", "udhcpc", "-f", "-i", "eth0", "-t", "20", "-T", "1", "-s", script}, args)...)
}

// wire is a packet socket on an interface, in a guest's namespace, or in the
// network's if key is empty.
func (n *network) wire(key, ifname string) *packet.Conn {
	n.t.Helper()
	var c *packet.Conn
	open := func(ns.NetNS) error {
		device, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		c, err = packet.Listen(device, packet.Raw, unix.ETH_P_ALL, nil)
		return err
	}
	var err error
	if key == "" {
		err = open(nil)
	} else {
		err = ns.WithNetNSPath("/run/netns/"+key, open)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

func send(t *testing.T, c *packet.Conn, frame []byte) {
	t.Helper()
	if _, err := c.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
		t.Fatal(err)
	}
}
