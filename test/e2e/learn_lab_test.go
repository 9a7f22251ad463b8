//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// onBoth runs a test on each release of OVN.
func onBoth(t *testing.T, test func(t *testing.T, ovn string)) {
	newer, err := lab.OVN25()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("23.03", func(t *testing.T) { test(t, "") })
	t.Run("25.03", func(t *testing.T) { test(t, newer) })
}

// port is OVN's name of the machine's port.
func (v *vm) port() string { return podnet.PortName("default/lan", "default", v.pod.Name) }

// follows awaits that the annotation, OVN and the vSwitch have an address for a
// machine, and OVN holds the guest to it if it is bound.
func (w *world) follows(v *vm, state string, addr netip.Prefix) {
	w.t.Helper()
	w.eventually(20*time.Second, func() string { return w.unlike(v, state, addr) })
}

// unlike is how what is known of a machine differs from what it should be.
func (w *world) unlike(v *vm, state string, addr netip.Prefix) string {
	w.t.Helper()
	e, _ := w.entry(v.pod, "default/lan")
	got := map[string]string{
		"annotation":    fmt.Sprint(e.Addrs),
		"addresses":     w.nbctl("lsp-get-addresses", v.port()),
		"port security": w.nbctl("lsp-get-port-security", v.port()),
		"vSwitch":       strings.Trim(w.vsctl(0, "--if-exists", "get", "Interface", w.vsctl(0, "--bare", "--columns=name", "find", "Interface", "external_ids:iface-id="+v.port()), "external_ids:ip_addresses"), `"`),
	}
	if e.DHCP != nil {
		got["state"] = e.DHCP.State
	}
	both := v.mac.String() + " " + addr.Addr().String()
	want := map[string]string{
		"annotation": "[" + addr.String() + "]", "state": state, "addresses": both, "port security": v.mac.String(), "vSwitch": addr.String(),
	}
	if state == podnet.StateBound {
		want["port security"] = both
	}
	return cmp.Diff(want, got)
}

// nowhere awaits that an address that a machine had is in OVN no more, and that the
// server has no lease of it.
func (w *world) nowhere(addr netip.Prefix) {
	w.t.Helper()
	w.eventually(20*time.Second, func() string {
		for _, table := range []string{"Logical_Switch_Port", "Address_Set"} {
			if out := w.nbctl("--columns=addresses", "list", table); strings.Contains(out, addr.Addr().String()) {
				return fmt.Sprintf("%s is in %s: %s", addr, table, out)
			}
		}
		leases, err := w.Lab.DHCP.Leases()
		w.must(err)
		for _, l := range leases {
			if l.Addr == addr.Addr() {
				return fmt.Sprintf("lease %+v", l)
			}
		}
		return ""
	})
}

// reaches checks that a guest and the physical network reach each other. The first
// packets may be lost while OVN's flows follow.
func (w *world) reaches(g *lab.Guest, addr netip.Prefix) {
	w.t.Helper()
	w.nbctl("--wait=hv", "sync")
	w.in(g.Netns, "ping", "-c1", "-w5", w.Lab.Phys.Gateway.String())
	if out, err := w.Lab.InPhys(w.t.Context(), "ping", "-c1", "-w5", addr.Addr().String()).CombinedOutput(); err != nil {
		w.t.Errorf("%s is not reached: %v: %s", addr, err, out)
	}
}

// on has a machine's guest get an address by its own client, with these arguments.
func (w *world) on(g *lab.Guest, n int, args ...string) netip.Prefix {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	w.must(g.Stop(ctx))
	g.ClientArgs = args
	w.must(g.Start(ctx))
	e, err := g.Await(ctx, "bound", n)
	w.must(err)
	return e.Addr
}

// off makes a machine's guest, with its client off.
func (w *world) off(v *vm) *lab.Guest {
	w.t.Helper()
	g, err := w.Lab.AddGuest(w.t.Context(), v.netns, "net1", v.mac, v.pod.Name)
	w.must(err)
	return g
}

// static gives a guest an address that no server knows of, and has it speak until the
// caller has it stop.
func (w *world) static(g *lab.Guest, addr netip.Prefix) (stop func()) {
	w.t.Helper()
	w.must(g.Stop(w.t.Context()))
	w.in(g.Netns, "ip", "addr", "flush", "dev", "eth0")
	w.in(g.Netns, "ip", "addr", "add", addr.String(), "dev", "eth0")
	w.in(g.Netns, "ip", "link", "set", "eth0", "up")
	ctx, cancel := context.WithCancel(w.t.Context())
	cmd := w.Lab.InNetns(ctx, g.Netns, "busybox", "arping", "-I", "eth0", w.Lab.Phys.Gateway.String())
	w.must(cmd.Start())
	return func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
}

func (w *world) addr(n byte) netip.Prefix {
	return netip.PrefixFrom(w.Lab.Phys.Host(n), w.Lab.Phys.Subnet.Bits())
}

// duid is a client identifier as RFC 4361 has it, for udhcpc.
func duid(n byte) []string {
	return []string{"-C", "-x", "0x3d:" + hex.EncodeToString([]byte{255, 0, 0, 0, 1, 0, 2, 0, 0, 0xab, 0x11, n})}
}

// TestGuestHasAnotherAddress has a guest whose client identifier is not that of its
// pod's ADD, so that it is given another address. Everything follows, also when the
// daemon was restarted, and what the ADD got is given back.
func TestGuestHasAnotherAddress(t *testing.T) {
	onBoth(t, func(t *testing.T, ovn string) {
		w := newWorld(t, site.Options{Lab: lab.Options{OVN: ovn}})
		v := w.newVM("vm1", 0)
		w.follows(v, podnet.StateOpen, v.addr)
		g := w.off(v)
		first := w.on(g, 1, duid(1)...)
		if first == v.addr {
			t.Fatalf("the guest was given %s, as its ADD", first)
		}
		w.follows(v, podnet.StateBound, first)
		w.reaches(g, first)
		w.nowhere(v.addr)
		w.told(v.pod, 5*time.Second, "DHCPAddressChanged", first.Addr().String())
		if _, addr := address(t, w.cni(0, v.call)); addr != first {
			t.Errorf("a repeated ADD gives %s, the guest has %s", addr, first)
		}

		w.must(w.StopNode(0, syscall.SIGKILL))
		w.must(w.StartNode(t.Context(), 0))
		w.must(g.Renew())
		w.bound(g, first, "renew", 1)
		w.follows(v, podnet.StateBound, first)
		second := w.on(g, 2, duid(2)...)
		if second == first {
			t.Fatalf("with another identifier the guest was given %s again", second)
		}
		w.follows(v, podnet.StateBound, second)
		w.reaches(g, second)
		for line := range strings.Lines(w.Lab.DHCP.Log()) {
			if strings.Contains(line, "DHCPRELEASE") && !strings.Contains(line, v.addr.Addr().String()) {
				t.Errorf("the guest's own lease was given back: %s", line)
			}
		}
		v.call.Command = "DEL"
		w.cni(0, v.call)
		if l := w.lease(v.mac.String()); l == nil || l.Addr != second.Addr() {
			t.Errorf("after DEL the guest's lease is %+v, want %s", l, second)
		}
	})
}

// TestServerMovesGuest has the server take a guest's address away by a NAK.
func TestServerMovesGuest(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, site.Options{Lab: lab.Options{DNSMasqArgs: []string{"--dhcp-hostsfile=" + hosts}}})
	v := w.newVM("vm1", 0)
	g := w.off(v)
	if got := w.on(g, 1); got != v.addr {
		t.Fatalf("the guest was given %s, its ADD %s", got, v.addr)
	}
	w.follows(v, podnet.StateBound, v.addr)

	moved := w.addr(60)
	w.must(os.WriteFile(hosts, fmt.Appendf(nil, "%s,%s\n", v.mac, moved.Addr()), 0o644))
	w.must(w.Lab.DHCP.Stop())
	w.must(w.Lab.DHCP.Start(t.Context()))
	w.must(g.Renew())
	w.bound(g, moved, "bound", 2)
	_, after, ok := strings.Cut(w.Lab.DHCP.Log(), "DHCPNAK")
	if n := strings.Count(after, "DHCPDISCOVER("); !ok || n > 2 {
		t.Errorf("NAK %v, then %d DISCOVER", ok, n)
	}
	w.follows(v, podnet.StateBound, moved)
	w.reaches(g, moved)
	w.nowhere(v.addr)
}

// TestStaticGuest has guests that give themselves another address than their lease's.
// Where they may not, that is told of; where they may, OVN learns it, every time.
func TestStaticGuest(t *testing.T) {
	onBoth(t, func(t *testing.T, ovn string) {
		w := newWorld(t, site.Options{Lab: lab.Options{OVN: ovn}})
		v := w.newVM("vm1", 0)
		g := w.off(v)
		w.on(g, 1)
		w.follows(v, podnet.StateBound, v.addr)
		claimed := w.addr(77)
		silence := w.static(g, claimed)
		w.told(v.pod, 10*time.Second, "PortSecurityDropped", claimed.Addr().String())
		if out, err := w.Lab.InNetns(t.Context(), g.Netns, "ping", "-c1", "-W1", w.Lab.Phys.Gateway.String()).CombinedOutput(); err == nil {
			t.Errorf("port security lets the guest speak: %s", out)
		}
		w.follows(v, podnet.StateBound, v.addr)
		silence()

		w.lan = w.lanWith(map[string]any{"learn": podnet.LearnAll})
		w.must(w.PutNetwork(w.lan))
		v = w.newVM("vm2", 0)
		g = w.off(v)
		w.on(g, 1)
		w.follows(v, podnet.StateBound, v.addr)
		for i, n := range []byte{81, 82, 81} {
			if i == 2 {
				w.must(w.StopNode(0, syscall.SIGKILL))
				w.must(w.StartNode(t.Context(), 0))
			}
			silence := w.static(g, w.addr(n))
			w.follows(v, podnet.StateBound, w.addr(n))
			silence()
			w.reaches(g, w.addr(n))
			w.told(v.pod, 5*time.Second, "DHCPAddressChanged", w.addr(n).Addr().String())
		}
		// What a server grants counts for more.
		again := w.on(g, 2)
		w.follows(v, podnet.StateBound, again)
		w.reaches(g, again)
	})
}

// TestSilentGuest has nothing come from a guest: neither what OVN announces in its name
// nor what somebody on the physical network says holds it to an address.
func TestSilentGuest(t *testing.T) {
	w := newWorld(t, site.Options{})
	w.lan = w.lanWith(map[string]any{"learn": podnet.LearnAll})
	w.must(w.PutNetwork(w.lan))
	v := w.newVM("vm1", 0)
	w.follows(v, podnet.StateOpen, v.addr)
	w.must(w.Lab.Nodes[0].StopController())
	w.must(w.Lab.Nodes[0].StartController())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	announced := fmt.Sprintf("arp and ether src %s and arp src host %s", v.mac, v.addr.Addr())
	if out, err := w.Lab.InPhys(ctx, "tcpdump", "-n", "-c2", "-i", w.Lab.Phys.Bridge, announced).CombinedOutput(); err != nil {
		t.Fatalf("OVN has not announced the address: %v: %s", err, out)
	}

	forged := w.addr(99)
	for _, args := range [][]string{
		{"ip", "link", "add", "forger", "address", v.mac.String(), "type", "veth", "peer", "name", "forger-br"},
		{"ip", "link", "set", "forger-br", "master", w.Lab.Phys.Bridge, "up"},
		{"ip", "link", "set", "forger", "up"},
		{"ethtool", "-K", "forger", "tx", "off"},
		{"ip", "addr", "add", forged.String(), "dev", "forger"},
		{"busybox", "arping", "-c3", "-U", "-I", "forger", forged.Addr().String()},
		{"ip", "link", "del", "forger"},
	} {
		out, err := w.Lab.InPhys(t.Context(), args[0], args[1:]...).CombinedOutput()
		// Nobody answers an announcement, which arping takes for a failure.
		if err != nil && args[0] != "busybox" {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	w.follows(v, podnet.StateOpen, v.addr)
	// The guest itself is listened to.
	g := w.off(v)
	silence := w.static(g, w.addr(98))
	w.follows(v, podnet.StateBound, w.addr(98))
	silence()
	learned, err := w.Lab.Sbctl(t.Context(), "--bare", "--columns=ip", "find", "MAC_Binding", "logical_port="+podnet.LearnerPortName("lan"))
	w.must(err)
	if strings.Contains(learned, forged.Addr().String()) {
		t.Errorf("%s was learned from the physical network", forged)
	}
	w.nowhere(v.addr) // nobody has taken what the ADD got
}

// TestLearnOff has the port of a guest left as its ADD has left it.
func TestLearnOff(t *testing.T) {
	w := newWorld(t, site.Options{NodeArgs: []string{"--learn", podnet.LearnOff}, ControllerArgs: []string{"--learn", podnet.LearnOff}})
	v := w.newVM("vm1", 0)
	g := w.off(v)
	other := w.on(g, 1, duid(1)...)
	w.in(g.Netns, "ping", "-c1", "-w5", w.Lab.Phys.Gateway.String())
	if diff := w.unlike(v, podnet.StateOpen, v.addr); diff != "" || other == v.addr {
		t.Errorf("the guest has %s: %s", other, diff)
	}
}
