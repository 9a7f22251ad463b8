// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

// budget is the time that the tests give an Acquire.
const budget = 45 * time.Second

func testConfig() Config {
	return Config{HardwareAddr: clientHW, HostName: "web-0"}
}

// count returns how many messages of a kind were sent.
func (w *wire) count(kind dhcpv4.MessageType) int {
	n := 0
	for _, s := range w.sent {
		if s.dhcp != nil && s.dhcp.MessageType() == kind {
			n++
		}
	}
	return n
}

// TestAcquireMessages looks at what is sent, byte by byte where it matters.
func TestAcquireMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		cfg := testConfig()
		cfg.ClientID = []byte("\x00box/net/net1")
		cfg.RequestedAddr = netip.MustParseAddr("192.0.2.50")
		cfg.Options = map[uint8][]byte{60: []byte("vendor")}
		cfg.Request = []uint8{1, 3}
		w := newWire(t, func(s sent) [][]byte {
			if s.after < 3*time.Second {
				return nil
			}
			return honest(s)
		})
		lease, err := acquire(ctx, w, cfg)
		if err != nil {
			t.Fatal(err)
		}
		want := granted(func(l *Lease) {
			at := w.began.Add(w.sent[len(w.sent)-1].after).UTC()
			l.ClientID = cfg.ClientID
			l.Acquired, l.Renew, l.Rebind, l.Expires = at, at.Add(30*time.Minute), at.Add(3150*time.Second), at.Add(time.Hour)
		})
		if diff := cmp.Diff(want, lease, compareAddrs); diff != "" {
			t.Errorf("lease (-want +got):\n%s", diff)
		}

		first, last := w.sent[0].dhcp, w.sent[len(w.sent)-1].dhcp
		for _, s := range w.sent {
			m := s.dhcp
			if !bytes.Equal(s.frame[:12], append(etherBroadcast(), clientHW...)) || !bytes.Equal(s.frame[26:34], []byte{0, 0, 0, 0, 255, 255, 255, 255}) {
				t.Errorf("frame %d: not from nobody to all: % x", s.n, s.frame[:34])
			}
			if m.OpCode != dhcpv4.OpcodeBootRequest || !m.IsBroadcast() || !bytes.Equal(m.ClientHWAddr, clientHW) || !m.ClientIPAddr.IsUnspecified() || m.TransactionID != first.TransactionID {
				t.Errorf("frame %d: header %v", s.n, m)
			}
			if secs := uint16(s.after / time.Second); m.NumSeconds != secs {
				t.Errorf("frame %d: %d secs after %v", s.n, m.NumSeconds, s.after)
			}
		}
		common := dhcpv4.Options{53: {1}, 61: cfg.ClientID, 12: []byte("web-0"), 60: []byte("vendor"), 55: {1, 3}, 57: {0x05, 0x78}, 50: {192, 0, 2, 50}}
		if diff := cmp.Diff(common, first.Options); diff != "" {
			t.Errorf("DISCOVER's options (-want +got):\n%s", diff)
		}
		common[53], common[50], common[54] = []byte{3}, leasedIP.AsSlice(), serverIP.AsSlice()
		if diff := cmp.Diff(common, last.Options); diff != "" {
			t.Errorf("REQUEST's options (-want +got):\n%s", diff)
		}
	})
}

// TestAcquireUnicast: a client that takes unicast answers asks for broadcasts when none
// comes.
func TestAcquireUnicast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Unicast = true
		tries := map[dhcpv4.MessageType]int{}
		w := newWire(t, func(s sent) [][]byte {
			tries[s.dhcp.MessageType()]++
			if s.dhcp.IsBroadcast() != (tries[s.dhcp.MessageType()] > 1) {
				t.Errorf("try %d of %v asks for a broadcast: %v", tries[s.dhcp.MessageType()], s.dhcp.MessageType(), s.dhcp.IsBroadcast())
			}
			if tries[s.dhcp.MessageType()] < 3 {
				return nil
			}
			return honest(s)
		})
		if _, err := acquire(t.Context(), w, cfg); err != nil || len(w.sent) != 6 {
			t.Errorf("sent %d messages, error %v", len(w.sent), err)
		}
	})
}

// TestAcquireRetransmits holds when a client that hears nothing sends again.
func TestAcquireRetransmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		w := newWire(t, func(sent) [][]byte { return nil })
		_, err := acquire(ctx, w, testConfig())
		silence, ok := errors.AsType[*SilenceError](err)
		if !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		if silence.Elapsed != budget || silence.Discovers != len(w.sent) || silence.Requests != 0 {
			t.Errorf("%d frames in %v: %v", len(w.sent), budget, silence)
		}
		base := 50 * time.Millisecond
		for i := 1; i < len(w.sent); i++ {
			if d := w.sent[i].after - w.sent[i-1].after; d < base*3/4 || d > base*5/4 {
				t.Errorf("wait %d is %v, want about %v", i, d, base)
			}
			base = min(base*2, 4*time.Second)
		}
		if n := len(w.sent); n < 14 || n > 20 {
			t.Errorf("%d DISCOVERs", n)
		}
	})
}

// TestAcquireLoses loses the first frames of each kind.
func TestAcquireLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		seen := map[dhcpv4.MessageType]int{}
		w := newWire(t, func(s sent) [][]byte {
			seen[s.dhcp.MessageType()]++
			if seen[s.dhcp.MessageType()] == 1 {
				return nil
			}
			return honest(s)
		})
		lease, err := acquire(ctx, w, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(w.began); len(w.sent) != 4 || d > 130*time.Millisecond {
			t.Errorf("%d frames, %v", len(w.sent), d)
		}
		// The lease counts from the first REQUEST: the server may have answered that.
		if want := w.began.Add(w.sent[2].after); !lease.Acquired.Equal(want) {
			t.Errorf("acquired %v, want %v", lease.Acquired, want)
		}
	})
}

// TestAcquireLateOffer is a server that probes an address for three seconds
// before it offers it: the retransmissions must not put it off.
func TestAcquireLateOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		var w *wire
		w = newWire(t, func(s sent) [][]byte {
			w.later(3*time.Second, honest(s)...)
			return nil
		})
		if _, err := acquire(ctx, w, testConfig()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(w.began); d != 6*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// TestAcquireStartsOver is a server that offers and then falls silent.
func TestAcquireStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		var xids []dhcpv4.TransactionID
		w := newWire(t, func(s sent) [][]byte {
			if s.dhcp.MessageType() == dhcpv4.MessageTypeDiscover {
				xids = append(xids, s.dhcp.TransactionID)
			} else if len(xids) < 3 {
				return nil
			}
			return honest(s)
		})
		if _, err := acquire(ctx, w, testConfig()); err != nil {
			t.Fatal(err)
		}
		if n := w.count(dhcpv4.MessageTypeRequest); n != 2*requestTries+1 || len(xids) != 3 {
			t.Errorf("%d DISCOVER, %d REQUEST", len(xids), n)
		}
		if xids[0] == xids[1] || xids[1] == xids[2] {
			t.Errorf("transactions %v", xids)
		}
	})
}

// TestAcquireRefused is a server that refuses twice what it offered.
func TestAcquireRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		naks := 0
		w := newWire(t, func(s sent) [][]byte {
			if s.dhcp.MessageType() == dhcpv4.MessageTypeRequest && naks < 2 {
				naks++
				return [][]byte{serverFrame(answer(s.dhcp.TransactionID, dhcpv4.MessageTypeNak))}
			}
			return honest(s)
		})
		cfg := testConfig()
		cfg.RequestedAddr = netip.MustParseAddr("192.0.2.50")
		if _, err := acquire(ctx, w, cfg); err != nil {
			t.Fatal(err)
		}
		if len(w.sent) != 6 {
			t.Fatalf("%d frames", len(w.sent))
		}
		for i, base := range map[int]time.Duration{2: 500 * time.Millisecond, 4: time.Second} {
			if d := w.sent[i].after - w.sent[i-1].after; d < base*3/4 || d > base*5/4 {
				t.Errorf("back-off before frame %d is %v, want about %v", i, d, base)
			}
		}
		if !w.sent[0].dhcp.Options.Has(dhcpv4.OptionRequestedIPAddress) || w.sent[2].dhcp.Options.Has(dhcpv4.OptionRequestedIPAddress) {
			t.Errorf("the refused address is asked for again, or never was")
		}
	})
}

// TestAcquireChooses takes the first useful one of several answers, and asks that
// server.
func TestAcquireChooses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		w := newWire(t, func(s sent) [][]byte {
			bad := honest(s, option(dhcpv4.OptionIPAddressLeaseTime))
			second := honest(s, option(dhcpv4.OptionServerIdentifier, 192, 0, 2, 2))
			third := honest(s, option(dhcpv4.OptionServerIdentifier, 192, 0, 2, 3))
			nak := serverFrame(answer(s.dhcp.TransactionID, dhcpv4.MessageTypeNak)) // of the server that was not chosen
			return append(append(append(bad, nak), second...), third...)
		})
		lease, err := acquire(ctx, w, testConfig())
		if err != nil {
			t.Fatal(err)
		}
		if want := netip.MustParseAddr("192.0.2.2"); lease.Server != want || len(w.sent) != 2 {
			t.Errorf("server %v, %d frames", lease.Server, len(w.sent))
		}
	})
}

// TestAcquireSilence holds the one line that a person gets to read.
func TestAcquireSilence(t *testing.T) {
	for name, test := range map[string]struct {
		script   func(s sent) [][]byte
		failure  error
		received uint64
		want     string
	}{
		"nothing":  {want: "no lease on net1 in 2s: sent 6 DISCOVER and 0 REQUEST, received nothing at all: context deadline exceeded"},
		"traffic":  {received: 7, want: "no lease on net1 in 2s: sent 6 DISCOVER and 0 REQUEST, no DHCP reply among 7 frames received: context deadline exceeded"},
		"down":     {failure: unix.ENETDOWN, want: "no lease on net1 in 2s: sent 6 DISCOVER and 0 REQUEST, received nothing at all, sending failed: network is down: context deadline exceeded"},
		"no reply": {received: 7, script: func(s sent) [][]byte { return honest(s, option(dhcpv4.OptionServerIdentifier)) }, want: "no lease on net1 in 2s: sent 6 DISCOVER and 0 REQUEST, discarded 6 without server identifier: context deadline exceeded"},
		"ARP": {received: 6, script: func(sent) [][]byte {
			return [][]byte{arpFrame(arpOpReply, clientHW, serverHW, serverIP, clientHW, leasedIP)}
		}, want: "no lease on net1 in 2s: sent 6 DISCOVER and 0 REQUEST, no DHCP reply among 6 frames received: context deadline exceeded"},
		"two reasons": {received: 7, script: func(s sent) [][]byte {
			return append(honest(s, yiaddr("0.0.0.0")), honest(s, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = serverHW })...)
		}, want: "no lease on net1 in 2s: sent 6 DISCOVER and 0 REQUEST, discarded 6 for another client, 6 with an address that can't be a host's: context deadline exceeded"},
		"refused": {received: 7, script: func(s sent) [][]byte {
			if s.dhcp.MessageType() == dhcpv4.MessageTypeRequest {
				return [][]byte{serverFrame(answer(s.dhcp.TransactionID, dhcpv4.MessageTypeNak, option(dhcpv4.OptionMessage, []byte("go \"away\"\n")...)))}
			}
			return honest(s)
		}, want: `no lease on net1 in 2s: sent 3 DISCOVER and 3 REQUEST, refused by 3 NAK, last: NAK from 192.0.2.1: "go \"away\"\n": context deadline exceeded`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The numbers are the same with any jitter: the 6th DISCOVER goes out
				// by 1.94 s, the 7th after 2.36 s; the third by 1.88 s if each is refused.
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if test.script == nil {
					test.script = func(sent) [][]byte { return nil }
				}
				w := newWire(t, test.script)
				w.failure = func(int) error { return test.failure }
				_, err := acquire(ctx, w, testConfig())
				silence, ok := errors.AsType[*SilenceError](err)
				if !ok {
					t.Fatal(err)
				}
				silence.Interface, silence.Received = "net1", test.received
				if got := silence.Error(); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			})
		})
	}
}

// TestAcquireCancelled is a caller that hangs up, at any moment.
func TestAcquireCancelled(t *testing.T) {
	refuse := func(s sent) [][]byte {
		if s.dhcp.MessageType() == dhcpv4.MessageTypeRequest {
			return [][]byte{serverFrame(answer(s.dhcp.TransactionID, dhcpv4.MessageTypeNak))}
		}
		return honest(s)
	}
	for name, script := range map[string]func(sent) [][]byte{
		"selecting": func(sent) [][]byte { return nil },
		"requesting": func(s sent) [][]byte {
			if s.dhcp.MessageType() == dhcpv4.MessageTypeRequest {
				return nil
			}
			return honest(s)
		},
		"backing off": refuse,
	} {
		t.Run(name, func(t *testing.T) {
			for after := time.Duration(0); after < 10*time.Second; after += 333 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(after, cancel)
					w := newWire(t, script)
					_, err := acquire(ctx, w, testConfig())
					if _, ok := errors.AsType[*SilenceError](err); !ok || !errors.Is(err, context.Canceled) {
						t.Errorf("error %v", err)
					}
					if d := time.Since(w.began); d != after {
						t.Errorf("ended after %v, cancelled after %v", d, after)
					}
				})
			}
		})
	}
}

// TestAcquireSendFails tells a failure that may pass from one that can't.
func TestAcquireSendFails(t *testing.T) {
	for name, test := range map[string]struct {
		failure error
		fatal   bool
	}{
		"interface down": {unix.ENETDOWN, false},
		"queue full":     {unix.ENOBUFS, false},
		"interface gone": {&net.OpError{Op: "write", Net: "packet", Err: unix.ENXIO}, true},
		"link closed":    {net.ErrClosed, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), budget)
				defer cancel()
				w := newWire(t, func(s sent) [][]byte { return honest(s) })
				w.failure = func(n int) error {
					if n < 3 {
						return test.failure
					}
					return nil
				}
				_, err := acquire(ctx, w, testConfig())
				if test.fatal != (err != nil) || err != nil && !errors.Is(err, test.failure) {
					t.Errorf("error %v", err)
				}
				if want := 0 * time.Second; test.fatal && time.Since(w.began) != want {
					t.Errorf("took %v", time.Since(w.began))
				}
			})
		})
	}
}

// TestAcquireChecks: a client that can't be is refused before anything is sent.
func TestAcquireChecks(t *testing.T) {
	_, err := Acquire(t.Context(), &Link{name: "net1"}, Config{})
	if err == nil || !strings.Contains(err.Error(), "net1") {
		t.Errorf("error %v", err)
	}
}

// TestAcquireTellsOfOffer has a caller who wants to know, or to stop, what is
// about to be requested.
func TestAcquireTellsOfOffer(t *testing.T) {
	stop := errors.New("no room")
	for name, want := range map[string]error{"goes on": nil, "stops": stop} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), budget)
				defer cancel()
				w := newWire(t, func(s sent) [][]byte { return honest(s) })
				cfg := testConfig()
				told := 0
				cfg.Selected = func(offer Lease) error {
					told++
					if offer.Addr.Addr() != leasedIP || offer.Server != serverIP || w.count(dhcpv4.MessageTypeRequest) > 0 {
						t.Errorf("told of %v from %v after %d frames", offer.Addr, offer.Server, len(w.sent))
					}
					return want
				}
				_, err := acquire(ctx, w, cfg)
				if !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
				if requested := w.count(dhcpv4.MessageTypeRequest) > 0; told != 1 || requested != (want == nil) {
					t.Errorf("told %d times, requested %v", told, requested)
				}
			})
		})
	}
}
