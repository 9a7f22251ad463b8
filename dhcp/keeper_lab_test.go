// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// keeperLab is a Keeper for a network's client, which configures the interface as a caller
// does, and a tap on the other end of the client's wire.
type keeperLab struct {
	n    *network
	dir  string
	k    *Keeper
	stop func()
	tap  *packet.Conn
}

func (n *network) keep() *keeperLab {
	n.t.Helper()
	l := &keeperLab{n: n, dir: n.t.TempDir(), tap: n.tap("p0")}
	l.start()
	n.t.Cleanup(func() { l.stop() })
	return l
}

func (l *keeperLab) start() {
	l.n.t.Helper()
	var err error
	l.k, err = NewKeeper(KeeperConfig{
		Dir: l.dir, Log: slog.New(slog.NewTextHandler(l.n.t.Output(), nil)),
		OnChange: func(_ context.Context, _ string, old, now Lease) error {
			if old.Addr == now.Addr {
				return nil
			}
			return errors.Join(l.configure("add", now), l.configure("del", old))
		},
		OnLost: func(_ context.Context, _ string, lease Lease) error { return l.configure("del", lease) },
		OnGone: func(context.Context, string, Lease) {}, // the look at the start may find what a test has without a path
	})
	if err != nil {
		l.n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = l.k.Run(ctx) })
	l.stop = func() { cancel(); run.Wait() }
}

func (l *keeperLab) configure(verb string, lease Lease) error {
	if !lease.Addr.IsValid() {
		return nil
	}
	out, err := exec.Command("ip", "-n", l.n.client, "addr", verb, lease.Addr.String(), "dev", "eth0").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (l *keeperLab) acquire() Lease {
	l.n.t.Helper()
	ctx, cancel := context.WithTimeout(l.n.t.Context(), 10*time.Second)
	defer cancel()
	lease, err := l.k.Acquire(ctx, "a", Client{Netns: "/run/netns/" + l.n.client, IfName: "eth0", Config: testConfig()})
	if err == nil {
		err = l.configure("add", lease)
	}
	if err != nil {
		l.n.t.Fatalf("%v; server's log:\n%s", err, l.n.read(l.n.log))
	}
	return lease
}

// has tells whether the client's interface has an address.
func (l *keeperLab) has(addr string) bool {
	out, err := exec.Command("ip", "-n", l.n.client, "-4", "addr", "show", "dev", "eth0").CombinedOutput()
	if err != nil {
		l.n.t.Fatalf("ip addr show: %v: %s", err, out)
	}
	return strings.Contains(string(out), "inet "+addr+" ")
}

// frames returns what has come by a tap so far: ARP, UDP, or ICMP of the client's, in words.
func (n *network) frames(tap *packet.Conn) []string {
	n.t.Helper()
	if err := tap.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		n.t.Fatal(err)
	}
	var out []string
	buf := make([]byte, 2048)
	for {
		size, _, err := tap.ReadFrom(buf)
		if err != nil {
			return out
		}
		switch f := buf[:size]; {
		case size > 14 && f[12] == 8 && f[13] == 6:
			out = append(out, "arp")
		case size > 42 && f[12] == 8 && f[13] == 0 && f[23] == 1 && bytes.Equal(f[6:12], clientHW): // a server that is down sends them too
			out = append(out, "icmp")
		case size > 42 && f[12] == 8 && f[13] == 0 && f[23] == 17:
			out = append(out, "udp")
		}
	}
}

func (n *network) icmp(tap *packet.Conn) int {
	return strings.Count(strings.Join(n.frames(tap), " "), "icmp")
}

// TestKeeperDnsmasqLab: two minutes is dnsmasq's shortest lease, but it can be told to name
// a T1 of two seconds. A renewal is two frames and ARP, no ICMP; a Keeper that is dropped
// and started again sends nothing before T1; and the lease leaves the server's file.
func TestKeeperDnsmasqLab(t *testing.T) {
	n := newNetwork(t)
	n.serve("--dhcp-option-force=58,3", "--dhcp-option-force=59,60")
	l := n.keep()
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := descriptors()
	lease := l.acquire()
	n.await("no file descriptor for a lease that sleeps", time.Second, func() bool { return descriptors() <= before })
	l.stop()
	n.frames(l.tap)
	l.start()
	if got := n.frames(l.tap); len(got) != 0 && time.Now().Before(lease.Renew) {
		t.Errorf("sent before T1: %v", got)
	}
	renewed := "DHCPREQUEST(br0) " + lease.Addr.Addr().String()
	requests := strings.Count(n.read(n.log), renewed)
	n.await("a renewal", 8*time.Second, func() bool { return strings.Count(n.read(n.log), renewed) > requests })
	got := n.frames(l.tap)
	t.Logf("frames of a renewal: %v", got)
	if strings.Count(strings.Join(got, " "), "udp") != 2 || strings.Contains(strings.Join(got, " "), "icmp") {
		t.Errorf("frames of a renewal: %v", got)
	}
	if err := l.k.Release(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	n.await("lease gone", 2*time.Second, func() bool { return n.read(n.leases) == "" })
}

// TestKeeperLinkLab: a Keeper speaks by the caller's Link, which is all there is of the
// interface here, and leaves it open. One that is not the client's changes nothing.
func TestKeeperLinkLab(t *testing.T) {
	n := newNetwork(t)
	n.serve()
	l := n.keep()
	path := filepath.Join(t.TempDir(), "netns") // until the Link is open
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/run/netns/"+n.client, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	link, err := OpenLink(path, "eth0")
	if err := errors.Join(err, unix.Unmount(path, 0)); err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, change := range map[string]func(*Client){
		"interface":         func(c *Client) { c.IfName = "eth1" },
		"hardware address":  func(c *Client) { c.Config.HardwareAddr = []byte{2, 0, 0, 0, 0, 0x77} },
		"network namespace": func(c *Client) { c.Netns = "" },
	} {
		c := Client{Netns: path, IfName: "eth0", Config: testConfig(), Link: link}
		change(&c)
		if _, err := l.k.Acquire(ctx, "a", c); err == nil || !strings.Contains(err.Error(), "Link") {
			t.Errorf("a Link of another %s: %v", name, err)
		}
	}
	if l.k.Holds("a") {
		t.Error("a client whose Link is another's has a record")
	}
	c := Client{Netns: path, IfName: "eth0", Config: testConfig(), Link: link}
	lease, err := l.k.Acquire(ctx, "a", c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := l.k.Acquire(ctx, "a", c); err != nil || !again.Acquired.Equal(lease.Acquired) {
		t.Errorf("another lease, error %v: %v, before %v", err, again, lease)
	}
	l.stop() // when all that it closes is closed
	if err := link.send(arpRequest(clientHW, lease.Addr.Addr(), serverIP)); err != nil {
		t.Errorf("the Link after the lease: %v", err)
	}
}
