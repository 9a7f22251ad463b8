// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// TestTraffic has two pods, one on each of two nodes, on a localnet switch:
// they get their addresses from the DHCP server and reach each other through
// OVN.
func TestTraffic(t *testing.T) {
	for _, r := range testReleases(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			testTraffic(t, New(t, Options{
				OVN:        r.ovn,
				Nodes:      2,
				RangeFirst: netip.MustParseAddr("10.1.192.50"),
				RangeLast:  netip.MustParseAddr("10.1.192.51"),
				LeaseTime:  time.Hour,
			}))
		})
	}
}

func testTraffic(t *testing.T, l *Lab) {
	ctx := t.Context()
	addNetwork(t, l, "net", 0)
	macs := []string{"0a:58:0a:01:c0:01", "0a:58:0a:01:c0:02"}
	for i, n := range l.Nodes {
		addPod(t, l, n, "net", fmt.Sprint("pod", i+1), macs[i])
	}
	nbctl(t, l, "--wait=hv", "sync")

	var addrs []netip.Addr
	for i := range l.Nodes {
		addrs = append(addrs, acquire(t, l, fmt.Sprint("pod", i+1)))
	}
	leases, err := l.DHCP.Leases()
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range addrs {
		j := slices.IndexFunc(leases, func(l DHCPLease) bool { return l.Addr == addr })
		if j < 0 || leases[j].MAC.String() != macs[i] {
			t.Errorf("no lease of %v for %s: %v", addr, macs[i], leases)
			continue
		}
		if left := time.Until(leases[j].Expiry); left < 59*time.Minute || left > time.Hour {
			t.Errorf("lease of %v expires in %v, not an hour", addr, left)
		}
	}
	ping(t, l.InNetns(ctx, "pod1", "ping", "-c1", "-W5", l.Phys.Gateway.String()))
	ping(t, l.InNetns(ctx, "pod1", "ping", "-c1", "-W5", addrs[1].String()))
	ping(t, l.InPhys(ctx, "ping", "-c1", "-W5", addrs[0].String()))

	if err := l.DHCP.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := udhcpc(l, "pod1", 1).CombinedOutput(); err == nil {
		t.Errorf("a stopped server has answered: %s", out)
	}
	if err := l.DHCP.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if again := acquire(t, l, "pod1"); again != addrs[0] {
		t.Errorf("after a restart of the server: %v, was %v", again, addrs[0])
	}
	if !strings.Contains(l.DHCP.Log(), "DHCPACK") {
		t.Errorf("no DHCPACK in the server's log:\n%s", l.DHCP.Log())
	}
}

func nbctl(t *testing.T, l *Lab, args ...string) {
	t.Helper()
	if _, err := l.Nbctl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

func ping(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// addNetwork adds a switch that is joined to the physical network with a tag, 0
// for none.
func addNetwork(t *testing.T, l *Lab, name string, tag int) {
	t.Helper()
	port := name + "-phys"
	args := []string{
		"ls-add", name, "--", "lsp-add", name, port, "--", "lsp-set-type", port, "localnet",
		"--", "lsp-set-addresses", port, "unknown", "--", "lsp-set-options", port, "network_name=" + l.Phys.Network,
	}
	if tag != 0 {
		args = append(args, "--", "set", "Logical_Switch_Port", port, fmt.Sprint("tag_request=", tag))
	}
	nbctl(t, l, args...)
}

// addPod adds a port to a network, and plugs a netns into a node's br-int.
func addPod(t *testing.T, l *Lab, n *Node, network, name, mac string) {
	t.Helper()
	nbctl(t, l, "lsp-add", network, name, "--", "lsp-set-addresses", name, mac, "--", "lsp-set-port-security", name, mac)
	if _, err := l.AddNetns(name); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{
		n.Command(t.Context(), "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", filepath.Base(l.NetnsPath(name))),
		n.Command(t.Context(), "ip", "link", "set", name, "up"),
		l.InNetns(t.Context(), name, "ethtool", "-K", "eth0", "tx", "off"),
		l.InNetns(t.Context(), name, "ip", "link", "set", "eth0", "up"),
		n.Command(t.Context(), "ovs-vsctl", "add-port", "br-int", name, "--", "set", "Interface", name, "external_ids:iface-id="+name),
	} {
		if _, err := output(cmd); err != nil {
			t.Fatal(err)
		}
	}
}

// udhcpc is a DHCP client that prints the address it has got. It asks so many
// times, for a second each.
func udhcpc(l *Lab, pod string, times int) *exec.Cmd {
	script := filepath.Join(l.Dir, "udhcpc")
	os.WriteFile(script, []byte("#!/bin/sh\n[ $1 != bound ] || { ip address replace $ip/$mask dev $interface; echo $ip; }\n"), 0o755)
	return l.InNetns(context.Background(), pod, "busybox", "udhcpc", "-i", "eth0", "-fnq", fmt.Sprint("-t", times), "-T1", "-A1", "-s", script)
}

func acquire(t *testing.T, l *Lab, pod string) netip.Addr {
	t.Helper()
	out, err := output(udhcpc(l, pod, 5))
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netip.ParseAddr(out)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// TestVLAN has a pod on the VLAN, one on another VLAN and one on none: only the
// first gets an address, and by frames with the tag.
func TestVLAN(t *testing.T) {
	for _, r := range testReleases(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			testVLAN(t, New(t, Options{OVN: r.ovn, VLAN: 100}))
		})
	}
}

func testVLAN(t *testing.T, l *Lab) {
	pods := []struct {
		name, mac string
		tag       int
		wire      string // in what the node sends
	}{
		{"tagged", "0a:58:0a:01:c0:01", 100, "vlan 100, p 0, ethertype IPv4"},
		{"other", "0a:58:0a:01:c0:02", 101, "vlan 101, p 0, ethertype IPv4"},
		{"untagged", "0a:58:0a:01:c0:03", 0, "ff:ff:ff:ff:ff:ff, ethertype IPv4"},
	}
	for _, p := range pods {
		addNetwork(t, l, p.name+"-net", p.tag)
		addPod(t, l, l.Nodes[0], p.name+"-net", p.name, p.mac)
	}
	nbctl(t, l, "--wait=hv", "sync")

	var g errgroup.Group
	for _, p := range pods {
		seen := capture(t, l, l.Nodes[0].Name, "ether src "+p.mac+" and ether broadcast")
		g.Go(func() error {
			if line := seen(); !strings.Contains(line, p.wire) {
				t.Errorf("pod %s: on the trunk is %q, want %q in it", p.name, line, p.wire)
			}
			return nil
		})
		if p.tag == l.Phys.VLAN {
			continue
		}
		g.Go(func() error {
			if out, err := udhcpc(l, p.name, 1).CombinedOutput(); err == nil {
				t.Errorf("pod %s has got a lease: %s", p.name, out)
			}
			return nil
		})
	}
	addr := acquire(t, l, "tagged")
	ping(t, l.InNetns(t.Context(), "tagged", "ping", "-c1", "-W5", l.Phys.Gateway.String()))
	ping(t, l.InPhys(t.Context(), "ping", "-c1", "-W5", addr.String()))
	g.Wait()
	if leases, err := l.DHCP.Leases(); err != nil || len(leases) != 1 || leases[0].Addr != addr {
		t.Errorf("leases are %v, %v, want one of %v", leases, err, addr)
	}
}

// capture captures on a device of the physical network. It returns when tcpdump
// is ready, and what it returns waits for the first frame and describes it.
func capture(t *testing.T, l *Lab, device, filter string) func() string {
	t.Helper()
	cmd := l.InPhys(t.Context(), "tcpdump", "-nn", "-e", "-c1", "-i", device, "--immediate-mode", filter)
	var frame bytes.Buffer
	cmd.Stdout = &frame
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	messages := bufio.NewScanner(stderr)
	for ready := false; !ready; ready = strings.HasPrefix(messages.Text(), "listening on") {
		if !messages.Scan() {
			t.Fatalf("tcpdump has ended: %v", cmd.Wait())
		}
	}
	return func() string {
		for messages.Scan() { // until it has ended
		}
		if err := cmd.Wait(); err != nil {
			return err.Error()
		}
		return frame.String()
	}
}
