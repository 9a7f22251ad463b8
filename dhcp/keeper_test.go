// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestKeeperRenews keeps a lease of an hour for two days: each renewal is two frames
// and ARP, at T1, and is told.
func TestKeeperRenews(t *testing.T) {
	onStage(t, func(s *stage) {
		began := time.Now()
		lease := s.acquire("a")
		if diff := cmp.Diff([]string{"discover", "select"}, s.took()); diff != "" {
			t.Fatal(diff)
		}
		renewals := 0
		for time.Since(began) < 48*time.Hour {
			s.until(lease.Renew.Add(-time.Second))
			if got := s.took(); len(got) != 0 {
				t.Fatalf("sent before T1: %v", got)
			}
			s.until(lease.Renew.Add(45 * time.Second)) // the fuzz is at most a 32nd of 22.5 minutes
			s.mu.Lock()
			frames := s.sent
			s.mu.Unlock()
			if len(frames) != 2 || frames[0].kind() != "arp" || frames[1].kind() != "renew" {
				t.Fatalf("sent %v", s.took())
			}
			m := frames[1].dhcp
			want := dhcpv4.Options{53: {3}, 61: lease.ClientID, 12: []byte("web-0"), 57: {0x05, 0x78}, 55: DefaultRequest()}
			if diff := cmp.Diff(want, m.Options); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			s.took()
			renewed, ok := s.k.Lease("a")
			if !ok || !renewed.Acquired.Equal(frames[1].at) || renewed.Expires.Sub(renewed.Acquired) != time.Hour {
				t.Fatalf("lease %v", renewed)
			}
			want1 := fmt.Sprintf("a: 192.0.2.77 to 192.0.2.77 until %s", renewed.Expires.Format(time.RFC3339))
			if diff := cmp.Diff([]string{want1}, s.heard()); diff != "" {
				t.Fatalf("told (-want +got):\n%s", diff)
			}
			lease = renewed
			renewals++
		}
		if renewals < 90 || s.ports != 0 {
			t.Errorf("%d renewals, %d ports open", renewals, s.ports)
		}
	})
}

// TestKeeperRebinds: the lease's server is no more; another one prolongs the lease, and
// is the lease's server from then on.
func TestKeeperRebinds(t *testing.T) {
	onStage(t, func(s *stage) {
		lease := s.acquire("a")
		s.took()
		s.serve(func(f sent) [][]byte {
			if bytes.Equal(f.frame[30:34], serverIP.AsSlice()) {
				return nil
			}
			return honest(f, option(dhcpv4.OptionServerIdentifier, otherServerIP.AsSlice()...))
		})
		s.until(lease.Rebind.Add(-time.Microsecond))
		tries := s.took()
		if len(tries) < 4 || len(tries) > 8 || slices.ContainsFunc(tries, func(k string) bool { return k != "renew" }) {
			t.Errorf("sent in RENEWING: %v", tries)
		}
		s.until(lease.Rebind.Add(20 * time.Second))
		if diff := cmp.Diff([]string{"rebind"}, s.took()); diff != "" {
			t.Fatal(diff)
		}
		rebound, _ := s.k.Lease("a")
		if rebound.Server != otherServerIP || rebound.Addr != lease.Addr {
			t.Errorf("lease %v", rebound)
		}
		s.until(rebound.Renew.Add(time.Minute))
		s.mu.Lock()
		last := s.sent[len(s.sent)-1]
		s.mu.Unlock()
		if last.kind() != "renew" || !bytes.Equal(last.frame[30:34], otherServerIP.AsSlice()) {
			t.Errorf("sent %v to % x", last.kind(), last.frame[30:34])
		}
	})
}

// TestKeeperLoses: no server until long after the end, and then one with another address.
func TestKeeperLoses(t *testing.T) {
	onStage(t, func(s *stage) {
		lease := s.acquire("a")
		s.serve(silent)
		s.until(lease.Expires.Add(-time.Millisecond))
		if _, ok := s.k.Lease("a"); !ok || len(s.heard()) != 0 {
			t.Error("lost before its time")
		}
		if got := s.took(); got[len(got)-1] != "rebind" {
			t.Errorf("sent %v", got)
		}
		s.until(lease.Expires)
		if diff := cmp.Diff([]string{"a: 192.0.2.77 lost"}, s.heard()); diff != "" {
			t.Error(diff)
		}
		if _, ok := s.k.Lease("a"); ok {
			t.Error("there is still a lease")
		}
		if diff := cmp.Diff([]string{"discover 192.0.2.77"}, s.took()); diff != "" {
			t.Error(diff)
		}
		// Days later it still tries, every five minutes for ten seconds.
		s.until(lease.Expires.Add(72 * time.Hour))
		s.took()
		s.until(lease.Expires.Add(78 * time.Hour))
		if n := len(s.took()) / 8; n < 55 || n > 90 || s.ports > 1 {
			t.Errorf("about %d tries in six hours", n)
		}
		s.serve(func(f sent) [][]byte { return honest(f, yiaddr("192.0.2.78")) })
		s.until(lease.Expires.Add(79 * time.Hour))
		now, ok := s.k.Lease("a")
		if !ok || now.Addr.Addr() != netip.MustParseAddr("192.0.2.78") {
			t.Fatalf("lease %v", now)
		}
		if got := s.heard(); len(got) == 0 || !strings.HasPrefix(got[0], "a: invalid IP to 192.0.2.78") {
			t.Errorf("told %v", got)
		}
	})
}

// TestKeeperRefused: a NAK, or an ACK for another address than can be taken without a
// question: the address is not used any more, and not asked for.
func TestKeeperRefused(t *testing.T) {
	other := yiaddr("192.0.2.78")
	for name, test := range map[string]struct {
		refuse func(sent) [][]byte
		probe  bool
	}{
		"NAK":                           {refuse: nak},
		"another address, to be probed": {func(f sent) [][]byte { return honest(f, other) }, true},
	} {
		for _, state := range []string{"renewing", "rebinding"} {
			t.Run(name+" while "+state, func(t *testing.T) {
				onStage(t, func(s *stage) {
					lease := s.bound(state, test.probe)
					s.serve(func(f sent) [][]byte {
						if !f.dhcp.ClientIPAddr.IsUnspecified() {
							return test.refuse(f)
						}
						return honest(f, other)
					})
					s.until(lease.Rebind.Add(time.Minute))
					want := map[string]string{"renewing": "renew", "rebinding": "rebind"}[state]
					if diff := cmp.Diff([]string{want, "discover", "select"}, s.took()); diff != "" {
						t.Errorf("sent (-want +got):\n%s", diff)
					}
					told := s.heard()
					if len(told) != 2 || told[0] != "a: 192.0.2.77 lost" || !strings.HasPrefix(told[1], "a: invalid IP to 192.0.2.78") {
						t.Errorf("told %v", told)
					}
				})
			})
		}
	}
}

// TestKeeperMoved: a server that gives another address when it is asked for more time has
// the client change over, from one to the other.
func TestKeeperMoved(t *testing.T) {
	for state, want := range map[string]string{"renewing": "renew", "rebinding": "rebind"} {
		t.Run(state, func(t *testing.T) {
			onStage(t, func(s *stage) {
				lease := s.bound(state, false)
				s.serve(func(f sent) [][]byte { return honest(f, yiaddr("192.0.2.78")) })
				s.until(lease.Rebind.Add(time.Minute))
				if diff := cmp.Diff([]string{want}, s.took()); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if told := s.heard(); len(told) != 1 || !strings.HasPrefix(told[0], "a: 192.0.2.77 to 192.0.2.78 until") {
					t.Errorf("told %v", told)
				}
				s.restart()
				if now, ok := s.k.Lease("a"); !ok || now.Addr.Addr() != netip.MustParseAddr("192.0.2.78") {
					t.Errorf("lease %v", now)
				}
			})
		})
	}
}

// bound has the key a get a lease that is about to be renewed, or rebound.
func (s *stage) bound(state string, probe bool) Lease {
	s.t.Helper()
	c := client()
	c.Config.Probe = probe
	lease, err := s.k.Acquire(s.t.Context(), "a", c)
	if err != nil {
		s.t.Fatal(err)
	}
	if state == "rebinding" {
		s.serve(silent)
		s.until(lease.Rebind.Add(-time.Millisecond))
	}
	s.took()
	return lease
}

// TestKeeperRefusedAlways: a server that offers and refuses is left in peace.
func TestKeeperRefusedAlways(t *testing.T) {
	onStage(t, func(s *stage) {
		lease := s.acquire("a")
		s.serve(nak)
		s.took()
		s.until(lease.Renew.Add(24 * time.Hour))
		if n := len(s.took()); n < 24*12 || n > 24*12*40 {
			t.Errorf("%d frames in a day", n)
		}
	})
}

// TestKeeperShort keeps leases of one second, and of two with T1 after T2.
func TestKeeperShort(t *testing.T) {
	for name, edits := range map[string][]edit{
		"one second":  {leaseTime(time.Second)},
		"T1 after T2": {leaseTime(2 * time.Second), option(dhcpv4.OptionRenewTimeValue, 0, 0, 0, 2), option(dhcpv4.OptionRebindingTimeValue, 0, 0, 0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				lost := 0
				s.serve(func(f sent) [][]byte {
					if lost++; lost%3 == 0 { // every third message
						return nil
					}
					return honest(f, edits...)
				})
				began := time.Now()
				s.acquire("a")
				s.until(began.Add(time.Minute))
				if _, ok := s.k.Lease("a"); !ok {
					t.Error("no lease")
				}
				for _, told := range s.heard() {
					if strings.HasSuffix(told, "lost") {
						t.Error(told)
					}
				}
			})
		})
	}
}

// TestKeeperForever: a lease that does not end needs nothing.
func TestKeeperForever(t *testing.T) {
	onStage(t, func(s *stage) {
		s.serve(func(f sent) [][]byte { return honest(f, option(dhcpv4.OptionIPAddressLeaseTime, 255, 255, 255, 255)) })
		s.acquire("a")
		s.took()
		began := time.Now()
		s.until(began.Add(24 * time.Hour))
		s.restart()
		s.until(began.Add(48 * time.Hour))
		if got := s.took(); len(got) != 0 {
			t.Errorf("sent %v", got)
		}
		if _, ok := s.k.Lease("a"); !ok {
			t.Error("no lease")
		}
	})
}

// TestKeeperMask: a server that leaves out the mask when it prolongs the lease does not
// take it away, but one that changes it does.
func TestKeeperMask(t *testing.T) {
	for want, e := range map[int]edit{24: option(dhcpv4.OptionSubnetMask), 25: option(dhcpv4.OptionSubnetMask, 255, 255, 255, 128)} {
		onStage(t, func(s *stage) {
			lease := s.acquire("a")
			s.serve(func(f sent) [][]byte { return honest(f, e) })
			s.until(lease.Rebind)
			now, _ := s.k.Lease("a")
			if now.Addr.Bits() != want || now.Acquired.Equal(lease.Acquired) {
				t.Errorf("address %v, want /%d", now.Addr, want)
			}
		})
	}
}

// TestKeeperResumes starts a new Keeper at different times: nothing is sent before it is
// time, and the lease is followed from where it was.
func TestKeeperResumes(t *testing.T) {
	for name, test := range map[string]struct {
		down time.Duration
		want []string
	}{
		"before T1":    {10 * time.Minute, nil},
		"after T1":     {35 * time.Minute, []string{"renew"}},
		"after T2":     {55 * time.Minute, []string{"rebind"}},
		"after expiry": {2 * time.Hour, []string{"discover 192.0.2.77", "select"}},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				lease := s.acquire("a")
				s.stop()
				s.took()
				s.until(lease.Acquired.Add(test.down))
				s.start()
				s.until(time.Now().Add(5 * time.Minute))
				if diff := cmp.Diff(test.want, s.took()); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if _, ok := s.k.Lease("a"); !ok {
					t.Error("no lease")
				}
			})
		})
	}
}

// TestKeeperReboots: after a reboot, a lease of the machine's own namespace is confirmed
// before it is used; a server that doesn't know it, or refuses it, gives another one.
func TestKeeperReboots(t *testing.T) {
	for name, test := range map[string]struct {
		server func(sent) [][]byte
		want   []string
	}{
		"confirmed": {func(f sent) [][]byte { return honest(f) }, []string{"reboot"}},
		"refused": {func(f sent) [][]byte {
			if !f.dhcp.Options.Has(dhcpv4.OptionServerIdentifier) {
				return nak(f)
			}
			return honest(f)
		}, []string{"reboot", "discover", "select"}},
		"unknown": {func(f sent) [][]byte {
			if f.dhcp.MessageType() == dhcpv4.MessageTypeRequest && !f.dhcp.Options.Has(dhcpv4.OptionServerIdentifier) {
				return nil
			}
			return honest(f)
		}, []string{"reboot", "reboot", "reboot", "reboot", "reboot", "discover 192.0.2.77", "select"}},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				c := client()
				c.Netns = ""
				if _, err := s.k.Acquire(s.t.Context(), "a", c); err != nil {
					t.Fatal(err)
				}
				s.stop()
				s.took()
				s.boot = "boot2"
				s.serve(test.server)
				s.start()
				s.until(time.Now().Add(time.Minute))
				if diff := cmp.Diff(test.want, s.took()); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if got := s.heard(); len(got) != 1 || !strings.HasPrefix(got[0], "a: invalid IP to 192.0.2.77") {
					t.Errorf("told %v", got)
				}
			})
		})
	}
}

// TestKeeperAcquireAgain: one client has one lease, however often and at once it is asked
// for; on another interface it is confirmed first.
func TestKeeperAcquireAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() { s.acquire("a") })
		}
		calls.Wait()
		s.restart()
		s.acquire("a")
		if diff := cmp.Diff([]string{"discover", "select"}, s.took()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		s.mu.Lock()
		s.place = "boot/2"
		s.mu.Unlock()
		s.acquire("a")
		if diff := cmp.Diff([]string{"reboot"}, s.took()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		if files, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(files) != 1 {
			t.Errorf("records %v", files)
		}
	})
}

// TestKeeperOffer: what is requested is on disk first, and can be given back although no
// answer came, even after a crash.
func TestKeeperOffer(t *testing.T) {
	for _, crash := range []bool{false, true} {
		onStage(t, func(s *stage) {
			s.serve(func(f sent) [][]byte {
				if f.dhcp.MessageType() == dhcpv4.MessageTypeRequest {
					if b, err := os.ReadFile(filepath.Join(s.dir, "a.json")); err != nil || !bytes.Contains(b, []byte(`"192.0.2.77/24"`)) {
						t.Errorf("no offer on disk: %s, %v", b, err)
					}
					return nil
				}
				return honest(f)
			})
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			defer cancel()
			if _, err := s.k.Acquire(ctx, "a", client()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			if _, ok := s.k.Lease("a"); ok {
				t.Error("an offer is taken for a lease")
			}
			s.took()
			if crash {
				s.restart()
				s.until(time.Now().Add(time.Minute))
				if got := s.took(); len(got) > 0 {
					t.Errorf("sent %v", got)
				}
			}
			if err := s.k.Release(s.t.Context(), "a"); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{"release"}, s.took()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKeeperLostAcquire: an Acquire of a client that has lost its lease ends after the
// offer, and the search goes on as before it, even after a crash.
func TestKeeperLostAcquire(t *testing.T) {
	for _, crash := range []bool{false, true} {
		onStage(t, func(s *stage) {
			lease := s.acquire("a")
			s.serve(silent)
			s.until(lease.Expires)
			s.serve(func(f sent) [][]byte {
				if f.dhcp.MessageType() == dhcpv4.MessageTypeRequest {
					return nil
				}
				return honest(f)
			})
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			defer cancel()
			if _, err := s.k.Acquire(ctx, "a", client()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			if crash {
				s.restart()
			}
			s.heard()
			s.serve(func(f sent) [][]byte { return honest(f) })
			s.until(time.Now().Add(10 * time.Minute))
			if now, ok := s.k.Lease("a"); !ok || now.Addr != lease.Addr {
				t.Errorf("lease %v", now)
			}
			if got := s.heard(); len(got) == 0 || !strings.HasPrefix(got[0], "a: invalid IP to 192.0.2.77") {
				t.Errorf("told %v", got)
			}
		})
	}
}

// TestKeeperData: what the caller wants to know is there as long as the record is, in
// each of its states, and after a restart.
func TestKeeperData(t *testing.T) {
	onStage(t, func(s *stage) {
		s.stop()
		s.cfg.SendRelease = func(context.Context, string, Lease) error { return errors.New("no way") }
		s.start()
		check := func(holds bool, want string) {
			t.Helper()
			if got := string(s.k.Data("a")); got != want || s.k.Holds("a") != holds {
				t.Errorf("data %q, want %q; holds %v, want %v", got, want, s.k.Holds("a"), holds)
			}
		}
		check(false, "")
		c := client()
		c.Data = []byte(`{"via":"br0"}`)
		lease, err := s.k.Acquire(s.t.Context(), "a", c)
		if err != nil {
			t.Fatal(err)
		}
		check(true, `{"via":"br0"}`)
		s.restart()
		s.serve(silent)
		s.until(lease.Expires)
		check(true, `{"via":"br0"}`) // lost
		s.serve(func(f sent) [][]byte { return honest(f) })
		s.until(lease.Expires.Add(10 * time.Minute))
		s.mu.Lock()
		s.place = ""
		s.mu.Unlock()
		if err := s.k.Release(s.t.Context(), "a"); !errors.Is(err, ErrPending) {
			t.Errorf("error %v", err)
		}
		check(false, `{"via":"br0"}`)
		if err := s.k.Forget(s.t.Context(), "a"); err != nil {
			t.Error(err)
		}
		check(false, "")
	})
}

// TestKeeperReleaseEndsAcquire at any moment of it; nothing is left.
func TestKeeperReleaseEndsAcquire(t *testing.T) {
	for after := time.Duration(0); after < 4*time.Second; after += 300 * time.Millisecond {
		onStage(t, func(s *stage) {
			s.serve(func(f sent) [][]byte {
				if f.dhcp.MessageType() == dhcpv4.MessageTypeRequest || f.after < time.Second {
					return nil
				}
				return honest(f)
			})
			failed := make(chan error)
			go func() {
				ctx, cancel := context.WithTimeout(s.t.Context(), budget)
				defer cancel()
				_, err := s.k.Acquire(ctx, "a", client())
				failed <- err
			}()
			s.settle() // the Acquire is under way
			time.Sleep(after)
			began := time.Now()
			go func() {
				if err := s.k.Release(s.t.Context(), "a"); err != nil {
					t.Error(err)
				}
			}()
			if err := <-failed; !errors.Is(err, errInterrupted) || time.Since(began) > 0 {
				t.Errorf("after %v: error %v", time.Since(began), err)
			}
			s.settle()
			if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 {
				t.Errorf("left: %v, %v", kept, pending)
			}
		})
	}
}

// TestKeeperReleaseTogether: fifty at once are one RELEASE.
func TestKeeperReleaseTogether(t *testing.T) {
	onStage(t, func(s *stage) {
		s.acquire("a")
		s.took()
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				if err := s.k.Release(s.t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if diff := cmp.Diff([]string{"release"}, s.took()); diff != "" {
			t.Error(diff)
		}
		if files, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(files) != 0 {
			t.Errorf("records %v", files)
		}
	})
}

// TestKeeperReleaseLater: what can't be given back now is given back when that is
// possible, by whatever way, in this process or a later one, but not after its end.
func TestKeeperReleaseLater(t *testing.T) {
	for name, test := range map[string]struct {
		back    time.Duration // when the interface is back
		restart bool
		other   bool // another way is there from then on
		want    []string
	}{
		"at once":       {want: []string{"release"}},
		"later":         {back: 20 * time.Minute, want: []string{"release"}},
		"after restart": {back: 20 * time.Minute, restart: true, want: []string{"release"}},
		"another way":   {back: 20 * time.Minute, other: true, want: []string{"a: by another way"}},
		"never":         {back: 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				began := time.Now()
				s.stop()
				s.cfg.SendRelease = func(_ context.Context, key string, lease Lease) error {
					if test.other && time.Since(began) >= test.back {
						return s.note(key + ": by another way")
					}
					return errors.New("no way")
				}
				s.start()
				s.acquire("a")
				s.took()
				if test.back > 0 {
					s.place = ""
				}
				if err := s.k.Release(s.t.Context(), "a"); errors.Is(err, ErrPending) != (test.back > 0) {
					t.Errorf("error %v", err)
				}
				if _, pending := s.k.Keys(); len(pending) == 1 != (test.back > 0) {
					t.Errorf("pending %v", pending)
				}
				if test.restart {
					s.restart()
				}
				s.until(began.Add(test.back))
				if !test.other {
					s.mu.Lock()
					s.place = "boot/1"
					s.mu.Unlock()
				}
				s.until(began.Add(test.back + 11*time.Minute))
				if diff := cmp.Diff(test.want, append(s.took(), s.heard()...)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 {
					t.Errorf("left: %v, %v", kept, pending)
				}
			})
		})
	}
}

// TestKeeperSuccessor: a lease that somebody else has by now is not given back.
func TestKeeperSuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		releasable func(context.Context, string, Lease) (bool, error)
		succeed    func(s *stage) error
		pending    bool
	}{
		"elsewhere": {
			func(context.Context, string, Lease) (bool, error) { return false, nil },
			func(s *stage) error { return s.k.Release(s.t.Context(), "a") }, false,
		},
		"nobody knows": {
			func(context.Context, string, Lease) (bool, error) { return true, errors.New("API is down") },
			func(s *stage) error { return s.k.Release(s.t.Context(), "a") }, true,
		},
		"newer key": {nil, func(s *stage) error {
			s.acquire("b")
			s.took()
			return s.k.Release(s.t.Context(), "a")
		}, false},
		"newer key, and another interface": {nil, func(s *stage) error {
			// A server goes by the client id, not by the hardware address.
			c := client()
			c.Config.ClientID = append([]byte{1}, clientHW...)
			c.Config.HardwareAddr = []byte{2, 0, 0, 0, 0, 9}
			s.serve(func(f sent) [][]byte {
				return honest(f, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = f.dhcp.ClientHWAddr })
			})
			if _, err := s.k.Acquire(s.t.Context(), "b", c); err != nil {
				return err
			}
			s.took()
			return s.k.Release(s.t.Context(), "a")
		}, false},
		"forgotten": {nil, func(s *stage) error { return s.k.Forget(s.t.Context(), "a") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.stop()
				s.cfg.Releasable = test.releasable
				s.start()
				s.acquire("a")
				s.took()
				if err := test.succeed(s); errors.Is(err, ErrPending) != test.pending {
					t.Errorf("error %v", err)
				}
				if got := s.took(); len(got) != 0 {
					t.Errorf("sent %v", got)
				}
				if kept, pending := s.k.Keys(); slices.Contains(kept, "a") || len(pending) == 1 != test.pending {
					t.Errorf("left: %v, %v", kept, pending)
				}
			})
		})
	}
}

// TestKeeperGoneWhileLost: a client that looks for a new lease is reported, too, when its
// network namespace is gone, and then forgotten.
func TestKeeperGoneWhileLost(t *testing.T) {
	for name, test := range map[string]struct {
		server func(sent) [][]byte
		want   []string
	}{
		"expired": {silent, []string{"a: 192.0.2.77 lost", "a: 192.0.2.77 gone"}},
		"refused": {nak, []string{"a: 192.0.2.77 lost", "a: invalid IP gone"}},
	} {
		for _, down := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, down: %v", name, down), func(t *testing.T) {
				onStage(t, func(s *stage) {
					lease := s.acquire("a")
					s.serve(test.server)
					s.until(lease.Expires.Add(time.Second))
					if down {
						s.stop()
					}
					s.mu.Lock()
					s.place = ""
					s.mu.Unlock()
					if down {
						s.start()
					}
					s.until(lease.Expires.Add(time.Hour))
					if diff := cmp.Diff(test.want, s.heard()); diff != "" {
						t.Errorf("told (-want +got):\n%s", diff)
					}
					if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 {
						t.Errorf("left: %v, %v", kept, pending)
					}
				})
			})
		}
	}
}

// TestKeeperGoneWithOffer: a lease that was requested, and may have been granted, is the
// caller's to give back when the interface is gone, for as long as that takes it.
func TestKeeperGoneWithOffer(t *testing.T) {
	for name, test := range map[string]struct {
		react bool
		want  []string
	}{
		"given back": {true, []string{"a: 192.0.2.77 lost", "a: 192.0.2.77 gone", "a: by another way"}},
		"left alone": {false, []string{"a: 192.0.2.77 lost", "a: 192.0.2.77 gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.stop()
				gone := s.cfg.OnGone
				s.cfg.OnGone = func(ctx context.Context, key string, lease Lease) {
					gone(ctx, key, lease)
					if test.react {
						time.Sleep(5 * time.Second) // it has other things to undo first
						if err := s.k.Release(ctx, key); err != nil {
							t.Error(err)
						}
					}
				}
				s.cfg.SendRelease = func(_ context.Context, key string, _ Lease) error { return s.note(key + ": by another way") }
				s.start()
				lease := s.acquire("a")
				s.serve(silent)
				s.until(lease.Expires.Add(time.Millisecond))
				s.serve(func(f sent) [][]byte {
					if f.dhcp.MessageType() == dhcpv4.MessageTypeDiscover {
						return honest(f)
					}
					return nil
				})
				s.until(lease.Expires.Add(5 * time.Second))
				s.mu.Lock()
				s.place = ""
				s.mu.Unlock()
				s.until(lease.Expires.Add(10 * time.Minute))
				if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 == test.react {
					t.Errorf("before its time ends: %v, %v", kept, pending)
				}
				s.until(lease.Expires.Add(2 * time.Hour))
				if diff := cmp.Diff(test.want, s.heard()); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
				if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 {
					t.Errorf("left: %v, %v", kept, pending)
				}
			})
		})
	}
}

// TestKeeperMoves: a newer sandbox takes the lease over; what the older one does after
// that does no harm.
func TestKeeperMoves(t *testing.T) {
	onStage(t, func(s *stage) {
		lease := s.acquire("old")
		if err := s.k.Move(s.t.Context(), "old", "new"); err != nil {
			t.Fatal(err)
		}
		s.took()
		s.restart()
		s.until(lease.Rebind)
		if err := s.k.Release(s.t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
		if got := append(s.took(), s.heard()...); len(got) != 0 {
			t.Errorf("before the new one is there: %v", got)
		}
		s.acquire("new")
		if diff := cmp.Diff([]string{"reboot"}, s.took()); diff != "" {
			t.Error(diff)
		}
		if err := s.k.Move(s.t.Context(), "nothing", "new"); err != nil {
			t.Error(err)
		}
		if _, ok := s.k.Lease("new"); !ok {
			t.Error("no lease")
		}
	})
}

// TestKeeperGone: an interface that is gone is reported once, and its lease forgotten at
// its end if nobody cares; without a callback it is given back.
func TestKeeperGone(t *testing.T) {
	for name, test := range map[string]struct {
		down  bool // it goes while no Keeper runs
		place string
		react string
		want  []string
	}{
		"while down":        {down: true, want: []string{"a: 192.0.2.77 gone"}},
		"while running":     {want: []string{"a: 192.0.2.77 gone"}},
		"another namespace": {down: true, place: "boot/2", want: []string{"a: 192.0.2.77 gone"}},
		"forgotten":         {down: true, react: "forget"},
		"released":          {down: true, react: "release", want: []string{"a: by another way"}},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				lease := s.acquire("a")
				s.took()
				s.stop()
				switch test.react {
				case "forget":
					s.cfg.OnGone = func(ctx context.Context, key string, _ Lease) {
						if err := s.k.Forget(ctx, key); err != nil {
							t.Error(err)
						}
					}
				case "release":
					s.cfg.OnGone = nil
					s.cfg.SendRelease = func(_ context.Context, key string, _ Lease) error { return s.note(key + ": by another way") }
				}
				if !test.down {
					s.start()
				}
				s.mu.Lock()
				s.place = test.place
				s.mu.Unlock()
				if test.down {
					s.start()
				}
				s.settle()
				if kept, _ := s.k.Keys(); test.react != "" && len(kept) != 0 {
					t.Errorf("kept %v", kept)
				}
				s.until(lease.Expires.Add(time.Minute))
				if diff := cmp.Diff(test.want, s.heard()); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
				if got := s.took(); len(got) != 0 {
					t.Errorf("sent %v", got)
				}
				if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 {
					t.Errorf("left: %v, %v", kept, pending)
				}
			})
		})
	}
}

// TestKeeperTellsAgain: what the caller could not do, or not finish, it is told again,
// with the newest lease.
func TestKeeperTellsAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		lease := s.acquire("a")
		s.refuse = errors.New("API is down")
		s.serve(func(f sent) [][]byte { return honest(f, option(dhcpv4.OptionRouter, 192, 0, 2, 9)) })
		s.until(lease.Renew.Add(10 * time.Minute))
		if n := len(s.heard()); n < 10 || n > 25 {
			t.Errorf("told %d times in ten minutes", n)
		}
		s.restart()
		s.until(time.Now().Add(time.Second))
		if n := len(s.heard()); n == 0 {
			t.Error("not told after a restart")
		}
		s.mu.Lock()
		s.refuse = nil
		s.mu.Unlock()
		s.until(time.Now().Add(2 * time.Minute))
		if n := len(s.heard()); n != 1 {
			t.Errorf("told %d times when it worked", n)
		}
	})
}

// TestKeeperSlowCaller: callbacks that hang hold up neither renewals of other leases nor
// the end of their own.
func TestKeeperSlowCaller(t *testing.T) {
	onStage(t, func(s *stage) {
		s.stop()
		s.cfg.Exchanges = 2
		s.cfg.OnChange = func(ctx context.Context, key string, _, _ Lease) error {
			<-ctx.Done()
			return ctx.Err()
		}
		s.start()
		for _, key := range []string{"a", "b", "c", "d"} {
			s.acquire(key)
		}
		began := time.Now()
		s.until(began.Add(24 * time.Hour))
		for _, key := range []string{"a", "b", "c", "d"} {
			if _, ok := s.k.Lease(key); !ok {
				t.Errorf("lease %s is lost", key)
			}
			asked := time.Now()
			if err := s.k.Release(s.t.Context(), key); err != nil || time.Since(asked) > 0 {
				t.Errorf("released %s in %v, %v", key, time.Since(asked), err)
			}
		}
	})
}

// TestKeeperMany: the leases of a node that all come due at once are renewed, a few at a
// time.
func TestKeeperMany(t *testing.T) {
	onStage(t, func(s *stage) {
		s.serve(func(f sent) [][]byte {
			return honest(f, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = f.dhcp.ClientHWAddr })
		})
		const n = 60
		for i := range n {
			c := client()
			c.Config.HardwareAddr = []byte{2, 0, 0, 0, 1, byte(i)}
			if _, err := s.k.Acquire(s.t.Context(), fmt.Sprint(i), c); err != nil {
				t.Fatal(err)
			}
		}
		s.took()
		s.stop()
		lease, _ := s.k.Lease("0")
		s.until(lease.Rebind.Add(time.Minute))
		s.most = 0
		s.start()
		s.until(time.Now().Add(time.Minute))
		got := s.took()
		if len(got) != n || slices.ContainsFunc(got, func(k string) bool { return k != "rebind" }) {
			t.Errorf("sent %d: %v", len(got), got)
		}
		if s.most > 16 || s.ports != 0 {
			t.Errorf("%d ports open at once, %d left", s.most, s.ports)
		}
	})
}

// TestKeeperSleeps: a lease that waits costs memory for its record, and nothing else.
func TestKeeperSleeps(t *testing.T) {
	const few, many, most = 100, 500, 8 << 10
	onStage(t, func(s *stage) {
		s.serve(func(f sent) [][]byte {
			return honest(f, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = f.dhcp.ClientHWAddr })
		})
		var bytes [2]uint64
		var goroutines [2]int
		held := 0
		for i, n := range []int{few, many} {
			for ; held < n; held++ {
				c := client()
				c.Config.HardwareAddr = []byte{2, 0, 0, 0, byte(held >> 8), byte(held)}
				if _, err := s.k.Acquire(s.t.Context(), fmt.Sprint(held), c); err != nil {
					t.Fatal(err)
				}
			}
			s.took()
			s.settle()
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			bytes[i], goroutines[i] = m.HeapAlloc+m.StackInuse, runtime.NumGoroutine()
		}
		perLease := (int64(bytes[1]) - int64(bytes[0])) / (many - few)
		t.Logf("%d bytes a lease", perLease)
		if perLease > most || goroutines[0] != goroutines[1] || s.ports != 0 {
			t.Errorf("%d bytes a lease, %d goroutines for %d leases, %d for %d, %d ports open", perLease, goroutines[0], few, goroutines[1], many, s.ports)
		}
	})
}

// TestKeeperProbes declines an address that somebody uses, and takes the next one.
func TestKeeperProbes(t *testing.T) {
	for name, used := range map[string]bool{"free": false, "in use": true} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.serve(func(f sent) [][]byte {
					if f.n > 3 { // not the first time
						return honest(f, yiaddr("192.0.2.78"))
					}
					return honest(f)
				})
				c := client()
				c.Config.Probe = true
				if used {
					s.owned = []netip.Addr{leasedIP}
				}
				lease, err := s.k.Acquire(s.t.Context(), "a", c)
				if err != nil {
					t.Fatal(err)
				}
				want, addr := []string{"discover", "select"}, leasedIP
				if used {
					want, addr = []string{"discover", "select", "decline", "discover", "select"}, netip.MustParseAddr("192.0.2.78")
				}
				if diff := cmp.Diff(want, s.took()); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if lease.Addr.Addr() != addr {
					t.Errorf("lease %v", lease.Addr)
				}
			})
		})
	}
}

// TestKeeperCorrupt: a record that can't be read is set aside, and the others live on.
func TestKeeperCorrupt(t *testing.T) {
	onStage(t, func(s *stage) {
		lease := s.acquire("a")
		s.stop()
		s.took()
		for name, content := range map[string]string{"b.json": `{"state": `, "c.json": `{"state":"bound"}`, "d.json": `{"state":"bound","lease":{"addr":"x"}}`} {
			if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.start()
		s.until(lease.Renew.Add(time.Minute))
		if diff := cmp.Diff([]string{"renew"}, s.took()); diff != "" {
			t.Error(diff)
		}
		if kept, _ := s.k.Keys(); !slices.Equal(kept, []string{"a"}) {
			t.Errorf("kept %v", kept)
		}
	})
}

func TestKeeperConfig(t *testing.T) {
	if _, err := NewKeeper(KeeperConfig{}); err == nil {
		t.Error("no error without a directory")
	}
}
