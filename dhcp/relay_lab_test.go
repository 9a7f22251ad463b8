// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package dhcp

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
)

// relay makes the bridge a router to another network, up0, and a DHCP relay to the server
// there, dnsmasq at farServerIP.
func (n *network) relay(args ...string) {
	n.t.Helper()
	router, far := n.server, n.server+"far"
	n.ip("netns", "add", far)
	n.t.Cleanup(func() { n.ip("netns", "del", far) })
	n.ip("-n", router, "link", "add", "up0", "type", "veth", "peer", "name", "eth0", "netns", far)
	n.ip("-n", router, "addr", "add", "203.0.113.1/24", "dev", "up0")
	n.ip("-n", router, "link", "set", "up0", "up")
	n.ip("-n", far, "addr", "add", farServerIP.String()+"/24", "dev", "eth0")
	n.ip("-n", far, "link", "set", "eth0", "up")
	n.ip("-n", far, "route", "add", "default", "via", "203.0.113.1")
	n.ip("netns", "exec", router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
	n.await("both ends up", 5*time.Second, func() bool { return n.isUp(router, "up0") && n.isUp(far, "eth0") })
	n.serveOn(far, "eth0", args...)
	n.dnsmasq(router, filepath.Join(n.t.TempDir(), "relay"), "DHCP relay", "--dhcp-relay="+serverIP.String()+","+farServerIP.String())
}

// routed waits for the client's own message to the server, which no relay has touched.
func (n *network) routed(tap *packet.Conn, kind dhcpv4.MessageType, from netip.Addr) {
	n.t.Helper()
	if err := tap.SetReadDeadline(time.Now().Add(8 * time.Second)); err != nil {
		n.t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for {
		size, _, err := tap.ReadFrom(buf)
		if err != nil {
			n.t.Fatalf("no %v from %v: %v", kind, from, err)
		}
		f := buf[:size]
		if size < 42 || f[23] != protocolUDP || !bytes.Equal(f[26:34], append(from.AsSlice(), farServerIP.AsSlice()...)) {
			continue
		}
		if m, err := dhcpv4.FromBytes(f[42:]); err == nil && m.MessageType() == kind && m.GatewayIPAddr.IsUnspecified() {
			return
		}
	}
}

// TestKeeperRelayLab gets a lease by a relay from a server on another network, renews it
// with that server itself, and gives it back to it.
func TestKeeperRelayLab(t *testing.T) {
	n := newNetwork(t)
	n.relay("--dhcp-option-force=58,3", "--dhcp-option-force=59,60")
	l, up := n.keep(), n.tap("up0")
	lease := l.acquire()
	if lease.Server != farServerIP || lease.Gateway != serverIP {
		t.Errorf("server %v, gateway %v", lease.Server, lease.Gateway)
	}
	n.routed(up, dhcpv4.MessageTypeRequest, lease.Addr.Addr())
	n.await("the lease renewed", time.Second, func() bool {
		now, _ := l.k.Lease("a")
		return now.Acquired.After(lease.Acquired) && now.Server == farServerIP
	})
	if err := l.k.Release(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	n.routed(up, dhcpv4.MessageTypeRelease, lease.Addr.Addr())
	n.await("lease gone", 2*time.Second, func() bool { return n.read(n.leases) == "" })
}
