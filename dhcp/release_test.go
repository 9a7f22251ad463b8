// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

var hopHW = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x09}

// arp answers a request for any of the given addresses.
func arp(s sent, owned ...netip.Addr) [][]byte {
	if s.dhcp != nil {
		return nil
	}
	target := netip.AddrFrom4([4]byte(s.frame[38:42]))
	for _, a := range owned {
		if a == target {
			return [][]byte{arpFrame(arpOpReply, clientHW, hopHW, a, clientHW, netip.AddrFrom4([4]byte(s.frame[28:32])))}
		}
	}
	return nil
}

// kinds tells in one letter each what was sent: an ARP request or a RELEASE.
func (w *wire) kinds() string {
	var b strings.Builder
	for _, s := range w.sent {
		if s.dhcp == nil {
			b.WriteByte('a')
		} else {
			b.WriteByte('R')
		}
	}
	return b.String()
}

func TestReleaseMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, func(s sent) [][]byte { return arp(s, serverIP) })
		if err := release(t.Context(), w, granted(nil)); err != nil {
			t.Fatal(err)
		}
		if got := w.kinds(); got != "aRa" || time.Since(w.began) != 0 {
			t.Fatalf("sent %q in %v", got, time.Since(w.began))
		}
		ask := w.sent[0].frame
		if !bytes.Equal(ask, arpRequest(clientHW, leasedIP, serverIP)) || !bytes.Equal(ask, w.sent[2].frame) {
			t.Errorf("ARP request % x", ask)
		}
		f, m := w.sent[1].frame, w.sent[1].dhcp
		if !bytes.Equal(f[:12], append(bytes.Clone(hopHW), clientHW...)) || !bytes.Equal(f[26:34], append(leasedIP.AsSlice(), serverIP.AsSlice()...)) {
			t.Errorf("RELEASE not from the leased address to the server: % x", f[:34])
		}
		if m.OpCode != dhcpv4.OpcodeBootRequest || m.IsBroadcast() || !m.ClientIPAddr.Equal(leasedIP.AsSlice()) || !bytes.Equal(m.ClientHWAddr, clientHW) {
			t.Errorf("RELEASE %v", m)
		}
		want := dhcpv4.Options{53: {7}, 54: serverIP.AsSlice(), 61: append([]byte{1}, clientHW...)}
		if diff := cmp.Diff(want, m.Options); diff != "" {
			t.Errorf("options (-want +got):\n%s", diff)
		}
	})
}

// TestReleaseFor: only the RELEASE has the address of a client that is elsewhere.
func TestReleaseFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := net.HardwareAddr{0x02, 0, 0, 0, 0, 0x0a}
		w := newWire(t, func(s sent) [][]byte { return arp(s, serverIP) })
		if err := releaseFor(t.Context(), w, granted(nil), own); err != nil {
			t.Fatal(err)
		}
		if got := w.kinds(); got != "aRa" {
			t.Fatalf("sent %q", got)
		}
		for i, from := range []net.HardwareAddr{own, clientHW, own} {
			if got := w.sent[i].frame[6:12]; !bytes.Equal(got, from) {
				t.Errorf("frame %d is from % x, want %v", i, got, from)
			}
		}
		if ask := w.sent[0].frame; !bytes.Equal(ask, arpRequest(own, leasedIP, serverIP)) {
			t.Errorf("ARP request % x", ask)
		}
	})
}

func TestNextHop(t *testing.T) {
	gateway, far := netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("203.0.113.67")
	for name, test := range map[string]struct {
		change func(*Lease)
		want   netip.Addr
	}{
		"on the subnet":             {func(l *Lease) { l.Gateway = gateway }, serverIP},
		"behind the gateway":        {func(l *Lease) { l.Server, l.Gateway = far, gateway }, gateway},
		"host route to the gateway": {func(l *Lease) { l.Addr, l.Gateway = netip.PrefixFrom(leasedIP, 32), gateway }, gateway},
		"no gateway":                {func(l *Lease) { l.Server = far }, far},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextHop(granted(test.change)); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	// answering is a server that answers only these of the frames.
	answering := func(frames ...int) func(s sent) [][]byte {
		return func(s sent) [][]byte {
			if slices.Contains(frames, s.n) {
				return arp(s, serverIP)
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		script func(s sent) [][]byte
		change func(*Lease)
		fail   error
		kinds  string
		want   string // part of the error
		within time.Duration
	}{
		"first ARP lost":    {script: answering(2, 4), kinds: "aaaRa", within: 250 * time.Millisecond},
		"RELEASE lost":      {script: answering(0, 4), kinds: "aRaRa", within: 150 * time.Millisecond},
		"hop falls silent":  {script: answering(0), kinds: "aRaRaRa", want: "does not answer any more", within: 350 * time.Millisecond},
		"silent, with hint": {script: answering(), kinds: "aaaaR", want: ErrUnconfirmed.Error(), within: 450 * time.Millisecond},
		"silent, no hint":   {script: answering(), change: func(l *Lease) { l.ServerHW = nil }, kinds: "aaaa", want: "resolving next hop 192.0.2.1: no answer", within: 450 * time.Millisecond},
		"interface down":    {script: answering(0), fail: unix.ENETDOWN, kinds: "a", want: "network is down"},
		"no address":        {change: func(l *Lease) { l.Addr = netip.Prefix{} }, want: "without address"},
		"no server":         {change: func(l *Lease) { l.Server = netip.Addr{} }, want: "without address"},
		"no hardware addr":  {change: func(l *Lease) { l.HardwareAddr = nil }, want: "without address"},
		"others' ARP, noise": {script: func(s sent) [][]byte {
			return append([][]byte{payloadFrame(nil), {1}, arpFrame(arpOpReply, clientHW, serverHW, leasedIP, clientHW, serverIP)}, arp(s, serverIP)...)
		}, kinds: "aRa"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire(t, test.script)
				w.failure = func(int) error { return test.fail }
				err := release(t.Context(), w, granted(test.change))
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				if got := w.kinds(); got != test.kinds {
					t.Errorf("sent %q, want %q", got, test.kinds)
				}
				if d := time.Since(w.began); d > test.within {
					t.Errorf("took %v", d)
				}
				if i := strings.IndexByte(test.kinds, 'R'); i >= 0 {
					want := hopHW
					if name == "silent, with hint" {
						want = serverHW
					}
					if got := net.HardwareAddr(w.sent[i].frame[:6]); !bytes.Equal(got, want) {
						t.Errorf("RELEASE to %v, want %v", got, want)
					}
				}
			})
		})
	}
}

func TestReleaseCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		w := newWire(t, func(sent) [][]byte { return nil })
		if err := release(ctx, w, granted(nil)); !errors.Is(err, context.DeadlineExceeded) || time.Since(w.began) != 50*time.Millisecond {
			t.Errorf("error %v after %v", err, time.Since(w.began))
		}
	})
}
