// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package dhcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// TestLeaseLab gets a lease from dnsmasq with all that it can say, and gives it
// back: it leaves the server's lease file although the interface goes away at once.
func TestLeaseLab(t *testing.T) {
	n := newNetwork(t)
	n.serve("--dhcp-option=option:router,192.0.2.254", "--dhcp-option=option:dns-server,192.0.2.5,192.0.2.6", "--domain=example.org",
		"--dhcp-option=option:domain-search,a.example.org,b.example.org", "--dhcp-option-force=option:mtu,1400",
		"--dhcp-option=option:classless-static-route,0.0.0.0/0,192.0.2.253,198.51.100.0/24,192.0.2.9")
	l := n.link()

	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	lease, err := Acquire(ctx, l, testConfig())
	if err != nil {
		t.Fatalf("%v; server's log:\n%s", err, n.read(n.log))
	}
	t.Logf("lease of %v in %v", lease.Addr, time.Since(start))

	if !netip.MustParsePrefix("192.0.2.0/24").Contains(lease.Addr.Addr()) || lease.Addr.Bits() != 24 {
		t.Errorf("address %v", lease.Addr)
	}
	if got := lease.Expires.Sub(lease.Acquired); got != time.Hour || lease.Acquired.Before(start.Add(-time.Second)) {
		t.Errorf("lease from %v to %v", lease.Acquired, lease.Expires)
	}
	want := granted(func(l *Lease) {
		l.Addr, l.ServerHW = lease.Addr, lease.ServerHW
		l.Acquired, l.Renew, l.Rebind, l.Expires = lease.Acquired, lease.Renew, lease.Rebind, lease.Expires
		l.Gateway = netip.MustParseAddr("192.0.2.253")
		l.Routes = []Route{{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("192.0.2.9")}}
		l.DNS = []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("192.0.2.6")}
		l.Domain, l.Search, l.MTU = "example.org", []string{"a.example.org", "b.example.org"}, 1400
	})
	if diff := cmp.Diff(want, lease, compareAddrs); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	// "expiry MAC address name client-id"
	line := strings.Fields(n.read(n.leases))
	if len(line) != 5 || !slices.Equal(line[1:], []string{clientHW.String(), lease.Addr.Addr().String(), "web-0", "01:" + clientHW.String()}) {
		t.Errorf("server's lease file: %v", line)
	}

	tap := n.tap("br0")
	start = time.Now()
	if err := Release(t.Context(), l, lease); err != nil {
		t.Fatal(err)
	}
	t.Logf("released in %v", time.Since(start))
	n.ip("-n", n.client, "link", "del", "eth0")
	n.await("lease gone", 2*time.Second, func() bool { return n.read(n.leases) == "" })
	t.Logf("gone from the server's lease file after %v", time.Since(start))

	buf := make([]byte, 2048)
	for {
		size, _, err := tap.ReadFrom(buf)
		if err != nil {
			t.Fatalf("no RELEASE on the wire: %v", err)
		}
		f := buf[:size]
		if size < 42 || binary.BigEndian.Uint16(f[36:]) != dhcpv4.ServerPort {
			continue
		}
		if !bytes.Equal(f[26:30], lease.Addr.Addr().AsSlice()) || !bytes.Equal(f[30:34], serverIP.AsSlice()) || !bytes.Equal(f[:6], lease.ServerHW) {
			t.Errorf("RELEASE from and to the wrong addresses: % x", f[:34])
		}
		break
	}
	if got, want := n.read(n.log), "DHCPRELEASE(br0) "+lease.Addr.Addr().String()+" "+clientHW.String(); !strings.Contains(got, want) {
		t.Errorf("server's log has no %q", want)
	}
}

// TestLongOptionsLab needs more room than the 576 bytes that every client takes.
func TestLongOptionsLab(t *testing.T) {
	n := newNetwork(t)
	var domains []string
	for _, c := range "abcd" {
		domains = append(domains, strings.Repeat(string(c), 50)+".example.org")
	}
	routes := []string{}
	want := []Route{}
	for i := range byte(24) {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, 0, 0}), 16)
		routes = append(routes, p.String(), serverIP.String())
		want = append(want, Route{p, serverIP})
	}
	n.serve("--dhcp-option=option:classless-static-route,"+strings.Join(routes, ","), "--dhcp-option=option:domain-search,"+strings.Join(domains, ","))
	lease := n.acquire(n.link(), testConfig())
	if diff := cmp.Diff(want, lease.Routes, compareAddrs); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(domains, lease.Search); diff != "" {
		t.Errorf("search (-want +got):\n%s", diff)
	}
}

// lossy loses the first frame.
type lossy struct {
	*Link
	sent int
}

func (l *lossy) send(frame []byte) error {
	if l.sent++; l.sent == 1 {
		return nil
	}
	return l.Link.send(frame)
}

// TestLostDiscoverLab: a lost DISCOVER costs tens of milliseconds.
func TestLostDiscoverLab(t *testing.T) {
	n := newNetwork(t)
	n.serve()
	start := time.Now()
	n.acquire(&lossy{Link: n.link()}, testConfig())
	if d := time.Since(start); d > 500*time.Millisecond {
		t.Errorf("took %v", d)
	}
}

// TestLinkJustUpLab asks as soon as the interface has been set up, or before.
func TestLinkJustUpLab(t *testing.T) {
	n := newNetwork(t)
	n.serve()
	l := n.link()
	var took []time.Duration
	for range 20 {
		n.ip("-n", n.client, "link", "set", "eth0", "down")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		done := make(chan error, 1)
		var ended time.Time
		go func() {
			_, err := Acquire(ctx, l, testConfig())
			ended = time.Now()
			done <- err
		}()
		up := time.Now()
		n.ip("-n", n.client, "link", "set", "eth0", "up")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		cancel()
		took = append(took, ended.Sub(up))
	}
	slices.Sort(took)
	t.Logf("from link up to lease: p50 %v, max %v", took[len(took)/2], took[len(took)-1])
	if worst := took[len(took)-1]; worst > time.Second {
		t.Errorf("took %v", worst)
	}
}

// TestSilenceLab: without a server the error comes in time and says what was seen.
func TestSilenceLab(t *testing.T) {
	for name, test := range map[string]struct {
		frame []byte
		want  string
	}{
		"nothing": {nil, "received nothing at all"},
		"traffic": {arpRequest(serverHW, serverIP, leasedIP), "no DHCP reply among 1 frames received"},
		"others":  {serverFrame(answer(testXID, dhcpv4.MessageTypeOffer, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = serverHW })), "discarded 1 for another client"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			l, tap := n.link(), n.tap("p0")
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			defer cancel()
			failed := make(chan error, 1)
			start := time.Now()
			go func() {
				_, err := Acquire(ctx, l, testConfig())
				failed <- err
			}()
			if test.frame != nil {
				for range 2 { // by the second DISCOVER, a wait was in vain
					if _, _, err := tap.ReadFrom(make([]byte, 2048)); err != nil {
						t.Fatal(err)
					}
				}
				inject(t, tap, test.frame)
			}
			err := <-failed
			if d := time.Since(start); d > time.Second {
				t.Errorf("took %v", d)
			}
			silence, ok := errors.AsType[*SilenceError](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			t.Log(err)
			if silence.Interface != "eth0" || silence.Discovers < 4 || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func inject(t *testing.T, c *packet.Conn, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if _, err := c.WriteTo(f, &packet.Addr{HardwareAddr: f[:6]}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoCarrierLab: without carrier nothing is sent, and the error says so.
func TestNoCarrierLab(t *testing.T) {
	for name, test := range map[string]struct{ netns, device, want string }{
		"far side down":  {"server", "p0", "no carrier"},
		"interface down": {"client", "eth0", "interface is down"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			l := n.link()
			n.ip("-n", map[string]string{"server": n.server, "client": n.client}[test.netns], "link", "set", test.device, "down")
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := Acquire(ctx, l, testConfig()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestInterfaceGoneLab: an interface that is taken away ends an Acquire at once.
func TestInterfaceGoneLab(t *testing.T) {
	n := newNetwork(t)
	l := n.link()
	tap := n.tap("p0")
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := Acquire(ctx, l, testConfig())
		done <- err
	}()
	if _, _, err := tap.ReadFrom(make([]byte, 2048)); err != nil { // the first DISCOVER
		t.Fatal(err)
	}
	n.ip("-n", n.client, "link", "del", "eth0")
	select {
	case err := <-done:
		if _, isSilence := errors.AsType[*SilenceError](err); err == nil || isSilence {
			t.Errorf("error %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("still at it after 5 s")
	}
}

// TestFilterLab sends to the client what the kernel has to keep from it, and then
// one frame that it has to let pass.
func TestFilterLab(t *testing.T) {
	n := newNetwork(t)
	l := n.link()
	good := payloadFrame([]byte("untagged"))
	tagged := func(tci byte, payload string) []byte {
		f := payloadFrame([]byte(payload))
		return append(append(bytes.Clone(f[:12]), 0x81, 0, 0xe0, tci), f[12:]...)
	}
	inject(t, n.tap("p0"),
		tagged(7, "VLAN 7"),
		change(good, 20, 0x20, 0),
		change(good, 36, 0, 67),
		arpRequest(serverHW, serverIP, leasedIP),
		tagged(0, "priority"),
		good,
	)
	// What the client itself sends does not come back to it, whatever it is.
	if err := l.send(good); err != nil {
		t.Fatal(err)
	}
	inject(t, n.tap("p0"), payloadFrame([]byte("last")))
	for _, want := range []string{"priority", "untagged", "last"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		frame, err := l.receive(ctx)
		cancel()
		if err != nil {
			t.Fatalf("waiting for %q: %v", want, err)
		}
		if payload, _, ok := dhcpPayload(frame); !ok || string(payload) != want {
			t.Errorf("received % x, want %q", frame, want)
		}
	}
}

// TestReceiveLab: the end of one wait does not end the next.
func TestReceiveLab(t *testing.T) {
	n := newNetwork(t)
	l, tap := n.link(), n.tap("p0")
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*50*time.Microsecond)
		_, err := l.receive(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("wait %d ended with %v", i, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		inject(t, tap, payloadFrame(nil))
		_, err = l.receive(ctx)
		cancel()
		if err != nil {
			t.Fatalf("after wait %d: %v", i, err)
		}
	}
}

func TestOpenLinkLab(t *testing.T) {
	n := newNetwork(t)
	left := filepath.Join(t.TempDir(), "netns") // a mount point that nothing is mounted on any more
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		netns, ifname, want string
		gone                bool
	}{
		"no namespace":  {"/run/netns/none-such", "eth0", "none-such", true},
		"no interface":  {"/run/netns/" + n.client, "eth9", "eth9", true},
		"not Ethernet":  {"/run/netns/" + n.client, "lo", "lo", false},
		"not namespace": {"/dev/null", "eth0", "/dev/null", true},
		"left behind":   {left, "eth0", left, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenLink(test.netns, test.ifname)
			gone := kernel{}.isGone(test.netns, err)
			if err == nil || !strings.Contains(err.Error(), test.want) || gone != test.gone {
				t.Errorf("error %v, want %q; gone: %v", err, test.want, gone)
			}
		})
	}
	// The current namespace.
	err := ns.WithNetNSPath("/run/netns/"+n.client, func(ns.NetNS) error {
		l, err := OpenLink("", "eth0")
		if err != nil {
			return err
		}
		return l.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSetUpLab: a Link that was opened while the interface was down loses no frame by that.
func TestSetUpLab(t *testing.T) {
	n := newNetwork(t)
	n.ip("-n", n.client, "link", "set", "eth0", "down")
	l := n.link()
	if got := l.HardwareAddr(); !bytes.Equal(got, clientHW) {
		t.Errorf("hardware address %v, want %v", got, clientHW)
	}
	if err := l.SetUp(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := l.awaitCarrier(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.send(arpRequest(clientHW, serverIP, serverIP)); err != nil {
		t.Errorf("the first frame: %v", err)
	}
	if err := l.SetUp(); err != nil {
		t.Errorf("setting up what is up: %v", err)
	}
	n.ip("-n", n.client, "link", "del", "eth0")
	if err := l.SetUp(); !errors.Is(err, unix.ENODEV) {
		t.Errorf("setting up what is gone: %v", err)
	}
}
