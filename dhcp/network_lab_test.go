// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package dhcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// network is a bridge with a server's address in one network namespace, and a
// client's interface eth0, a veth to that bridge, in another.
type network struct {
	t              *testing.T
	server, client string // names of the namespaces
	// leases and log are dnsmasq's files.
	leases, log string
}

// newNetwork makes the network, both ends up, without a DHCP server. It is gone
// when the test is.
func newNetwork(t *testing.T) *network {
	t.Helper()
	dir := t.TempDir()
	n := &network{
		t:      t,
		server: fmt.Sprintf("dhcp-%d-%d-s", os.Getpid(), time.Now().UnixNano()),
		client: fmt.Sprintf("dhcp-%d-%d-c", os.Getpid(), time.Now().UnixNano()),
		leases: filepath.Join(dir, "leases"),
		log:    filepath.Join(dir, "log"),
	}
	for _, name := range []string{n.server, n.client} {
		n.ip("netns", "add", name)
		t.Cleanup(func() { n.ip("netns", "del", name) })
		// Nothing but what the tests send is to be on the wire.
		n.ip("netns", "exec", name, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
	}
	n.ip("-n", n.server, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0") // else it sends IGMP
	n.ip("-n", n.server, "addr", "add", serverIP.String()+"/24", "dev", "br0")
	n.ip("-n", n.server, "link", "set", "br0", "up")
	n.ip("-n", n.server, "link", "add", "p0", "type", "veth", "peer", "name", "eth0", "address", clientHW.String(), "netns", n.client)
	n.ip("-n", n.server, "link", "set", "p0", "master", "br0", "up")
	n.ip("-n", n.client, "link", "set", "eth0", "up")
	n.await("both ends up", 5*time.Second, func() bool { return n.isUp(n.server, "p0") && n.isUp(n.client, "eth0") })
	return n
}

// isUp tells whether an interface forwards: the kernel starts its queue a moment
// after its carrier.
func (n *network) isUp(netns, ifname string) bool {
	n.t.Helper()
	out, err := exec.Command("ip", "-n", netns, "link", "show", ifname).CombinedOutput()
	if err != nil {
		n.t.Fatalf("ip link show %s: %v: %s", ifname, err, out)
	}
	return strings.Contains(string(out), "state UP")
}

// ip runs ip(8).
func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// serve starts dnsmasq on the bridge, and returns when it serves.
func (n *network) serve(args ...string) {
	n.t.Helper()
	n.serveOn(n.server, "br0", args...)
}

func (n *network) serveOn(netns, ifname string, args ...string) {
	n.t.Helper()
	n.dnsmasq(netns, n.log, "sockets bound", append([]string{
		"--interface=" + ifname, "--bind-interfaces", "--dhcp-authoritative", "--log-dhcp",
		"--dhcp-range=192.0.2.100,192.0.2.200,255.255.255.0,1h", "--dhcp-leasefile=" + n.leases,
	}, args...)...)
}

// dnsmasq starts dnsmasq in a network namespace, and returns when its log says that it is ready.
func (n *network) dnsmasq(netns, log, ready string, args ...string) {
	n.t.Helper()
	args = append([]string{
		"netns", "exec", netns, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
		"--port=0", "--user=root", "--pid-file", "--no-ping", "--log-facility=" + log,
	}, args...)
	cmd := exec.Command("ip", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	n.await("dnsmasq serves", 5*time.Second, func() bool { return strings.Contains(n.read(log), ready) })
}

func (n *network) read(file string) string {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	return string(b)
}

// await returns when the condition holds.
func (n *network) await(what string, within time.Duration, condition func() bool) {
	n.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			n.t.Fatalf("not within %v: %s; server's log:\n%s", within, what, n.read(n.log))
		}
	}
}

// link opens the client's interface.
func (n *network) link() *Link {
	n.t.Helper()
	l, err := OpenLink("/run/netns/"+n.client, "eth0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			n.t.Error(err)
		}
	})
	return l
}

// tap opens a plain packet socket on one of the server's interfaces: br0, or p0,
// which is the far end of the client's.
func (n *network) tap(ifname string) *packet.Conn {
	n.t.Helper()
	var c *packet.Conn
	err := ns.WithNetNSPath("/run/netns/"+n.server, func(ns.NetNS) error {
		device, err := net.InterfaceByName(ifname)
		if err != nil {
			return err
		}
		c, err = packet.Listen(device, packet.Raw, unix.ETH_P_ALL, nil)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// acquire gets a lease for the client and logs the time taken.
func (n *network) acquire(c conn, cfg Config) Lease {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
	defer cancel()
	start := time.Now()
	lease, err := acquire(ctx, c, cfg)
	if err != nil {
		n.t.Fatalf("%v; server's log:\n%s", err, n.read(n.log))
	}
	n.t.Logf("lease of %v in %v", lease.Addr, time.Since(start))
	return lease
}
