// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

// TestProbeDeclines: after a DECLINE the client waits for ten seconds at least before it
// starts over (RFC 2131, 3.1, 5), or until its time is up.
func TestProbeDeclines(t *testing.T) {
	for name, test := range map[string]struct {
		within time.Duration
		want   string // the error; empty for a lease
	}{
		"starts over": {budget, ""},
		"time is up":  {5 * time.Second, "declined: 192.0.2.77 is in use by " + hopHW.String()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				w := newWire(t, nil)
				w.script = func(s sent) [][]byte {
					switch {
					case s.dhcp != nil:
						return honest(s)
					case w.count(dhcpv4.MessageTypeDecline) == 0:
						return arp(s, leasedIP)
					}
					return nil // whoever used it is no more
				}
				cfg := testConfig()
				cfg.Probe = true
				_, err := acquire(ctx, w, cfg)
				if test.want != "" {
					if err == nil || !strings.Contains(err.Error(), test.want) || time.Since(w.began) != test.within {
						t.Errorf("error %v after %v, want %q after %v", err, time.Since(w.began), test.want, test.within)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				i := slices.IndexFunc(w.sent, func(s sent) bool { return s.dhcp != nil && s.dhcp.MessageType() == dhcpv4.MessageTypeDecline })
				if i < 0 {
					t.Fatal("no DECLINE")
				}
				if d := w.sent[i+1].after - w.sent[i].after; d < 10*time.Second || d > 15*time.Second {
					t.Errorf("started over %v after the DECLINE", d)
				}
			})
		})
	}
}

// TestProbeTakes: neither an answer by the client's own hardware address, as a bridge may
// send back, nor a question that could not be sent is a sign that somebody uses the address.
func TestProbeTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, nil)
		w.script = func(s sent) [][]byte {
			if s.dhcp != nil {
				return honest(s)
			}
			return [][]byte{arpFrame(arpOpReply, clientHW, clientHW, leasedIP, clientHW, netip.IPv4Unspecified())}
		}
		w.failure = func(n int) error {
			if n == 2 { // the first question
				return unix.ENOBUFS
			}
			return nil
		}
		cfg := testConfig()
		cfg.Probe = true
		if lease, err := acquire(t.Context(), w, cfg); err != nil || lease.Addr.Addr() != leasedIP {
			t.Errorf("lease %v, error %v", lease.Addr, err)
		}
		if n := w.count(dhcpv4.MessageTypeDecline); n != 0 || len(w.sent) != 2+probes {
			t.Errorf("%d DECLINEs, %d frames", n, len(w.sent))
		}
	})
}

// TestKeeperDeclines: a Keeper that looks for a new lease does so in tries of ten seconds.
// A DECLINE late in one holds up the next, and the address is not asked for any more.
func TestKeeperDeclines(t *testing.T) {
	onStage(t, func(s *stage) {
		c := client()
		c.Config.Probe = true
		lease, err := s.k.Acquire(s.t.Context(), "a", c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.serve(silent)
		s.until(lease.Expires.Add(-time.Second))
		s.took()
		s.mu.Lock()
		s.owned = []netip.Addr{leasedIP}
		s.mu.Unlock()
		s.serve(func(f sent) [][]byte {
			if f.after < 3*time.Second { // of a try
				return nil
			}
			return honest(f)
		})
		s.until(lease.Expires.Add(5 * time.Minute))
		s.mu.Lock()
		defer s.mu.Unlock()
		var declined []time.Time
		for _, f := range s.sent {
			kind := f.kind()
			if n := len(declined); n > 0 && kind != "arp" {
				if kind != "discover" && kind != "select" && kind != "decline" {
					t.Errorf("%s after a DECLINE", kind)
				}
				if d := f.at.Sub(declined[n-1]); d < 10*time.Second {
					t.Errorf("%s %v after a DECLINE", kind, d)
				}
			}
			if kind == "decline" {
				declined = append(declined, f.at)
			}
		}
		if len(declined) < 2 {
			t.Errorf("%d DECLINEs", len(declined))
		}
	})
}

// TestKeeperDenied: an address that somebody else uses, or that the server has refused, is
// not given back, since it is not the client's.
func TestKeeperDenied(t *testing.T) {
	for name, server := range map[string]func(sent) [][]byte{
		"declined": func(f sent) [][]byte { return honest(f) }, "refused": nak,
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.owned = []netip.Addr{leasedIP}
				s.serve(server)
				c := client()
				c.Config.Probe = true
				ctx, cancel := context.WithTimeout(s.t.Context(), 100*time.Millisecond) // less than any back-off
				defer cancel()
				if _, err := s.k.Acquire(ctx, "a", c); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v", err)
				}
				s.took()
				if s.k.Holds("a") {
					t.Error("there is a record")
				}
				if err := s.k.Release(s.t.Context(), "a"); err != nil || len(s.sent) > 0 {
					t.Errorf("sent %v, error %v", s.sent, err)
				}
			})
		})
	}
}
