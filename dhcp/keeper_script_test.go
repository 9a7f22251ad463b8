// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// stage is a ground with a scripted server, a Keeper, and a record of what happens, all
// in virtual time.
type stage struct {
	t   *testing.T
	dir string
	cfg KeeperConfig
	k   *Keeper
	// stop ends Run.
	stop func()

	mu sync.Mutex
	// server answers DHCP messages; it is honest at first.
	server func(s sent) [][]byte
	// place is what the kernel calls the client's namespace; empty if it is gone.
	place string
	// boot is this start of the machine.
	boot string
	// owned are addresses that somebody on the network uses.
	owned []netip.Addr
	// sent holds the DHCP messages and the ARP requests sent, with the time.
	sent []timed
	// ports counts those open now, and most how many were at once.
	ports, most int
	// told is what the callbacks said, and refuse what they are to return.
	told   []string
	refuse error
}

type timed struct {
	sent
	at time.Time
}

// onStage runs a test with a Keeper that runs.
func onStage(t *testing.T, test func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, dir: t.TempDir(), place: "boot/1", boot: "boot", server: func(s sent) [][]byte { return honest(s) }}
		s.cfg = KeeperConfig{
			OnChange: func(_ context.Context, key string, old, now Lease) error {
				return s.note(fmt.Sprintf("%s: %v to %v until %v", key, old.Addr.Addr(), now.Addr.Addr(), now.Expires.Format(time.RFC3339)))
			},
			OnLost: func(_ context.Context, key string, lease Lease) error {
				return s.note(fmt.Sprintf("%s: %v lost", key, lease.Addr.Addr()))
			},
			OnGone: func(_ context.Context, key string, lease Lease) {
				_ = s.note(fmt.Sprintf("%s: %v gone", key, lease.Addr.Addr()))
			},
		}
		s.start()
		test(s)
		s.stop()
	})
}

// start starts a Keeper on the stage's directory, as a process that is started anew, and
// lets it do what it does at its start.
func (s *stage) start() {
	s.t.Helper()
	cfg := s.cfg
	cfg.Dir, cfg.Log = s.dir, slog.New(slog.DiscardHandler)
	k, err := newKeeper(cfg, s)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	s.k = k
	go func() { done <- k.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			s.t.Errorf("Run returned %v", err)
		}
	}
	s.settle()
}

func (s *stage) restart() { s.stop(); s.start() }

func (s *stage) note(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what)
	return s.refuse
}

// serve changes the server.
func (s *stage) serve(server func(s sent) [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = server
}

// settle waits until nothing more happens now.
func (s *stage) settle() { synctest.Wait() }

// until lets time pass until t, and what happens then.
func (s *stage) until(t time.Time) {
	time.Sleep(time.Until(t))
	synctest.Wait()
}

func (s *stage) identify(netns string, _ *Link) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case netns == "":
		return s.boot, nil
	case s.place == "":
		return "", fmt.Errorf("netns %q: %w", netns, errGone)
	}
	return s.place, nil
}

// stagePort is an open interface of the stage.
type stagePort struct {
	*wire
	s *stage
}

func (p stagePort) Close() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.ports--
	return nil
}

func (s *stage) open(id identity, _ netip.Addr) (port, error) {
	if place, err := s.identify(id.Netns, nil); err != nil || place != id.Place {
		return nil, errors.Join(errGone, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports++
	s.most = max(s.most, s.ports)
	return stagePort{newWire(s.t, s.exchange), s}, nil
}

// exchange notes a frame and returns the answers.
func (s *stage) exchange(f sent) [][]byte {
	s.mu.Lock()
	s.sent = append(s.sent, timed{f, time.Now()})
	server := s.server
	s.mu.Unlock()
	if f.dhcp == nil {
		return arp(f, append(s.owned, serverIP, otherServerIP)...)
	}
	return server(f)
}

var otherServerIP = netip.MustParseAddr("192.0.2.2")

// kind is what was sent in which state, by RFC 2131, table 4, in one word.
func (f timed) kind() string {
	m := f.dhcp
	if m == nil {
		return "arp"
	}
	broadcast := bytes.Equal(f.frame[30:34], []byte{255, 255, 255, 255})
	asked, named := m.Options.Has(dhcpv4.OptionRequestedIPAddress), m.Options.Has(dhcpv4.OptionServerIdentifier)
	ciaddr := !m.ClientIPAddr.IsUnspecified()
	fromOwn := bytes.Equal(f.frame[26:30], m.ClientIPAddr.To4())
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		if broadcast && !named && !ciaddr && fromOwn && m.IsBroadcast() {
			if asked {
				return "discover " + netip.AddrFrom4([4]byte(m.Options.Get(dhcpv4.OptionRequestedIPAddress))).String()
			}
			return "discover"
		}
	case dhcpv4.MessageTypeRequest:
		switch {
		case !fromOwn:
		case broadcast && asked && named && !ciaddr && m.IsBroadcast():
			return "select"
		case broadcast && asked && !named && !ciaddr && m.IsBroadcast():
			return "reboot"
		case broadcast && !asked && !named && ciaddr && !m.IsBroadcast():
			return "rebind"
		case !broadcast && !asked && !named && ciaddr && !m.IsBroadcast() && bytes.Equal(f.frame[:6], hopHW):
			return "renew"
		}
	case dhcpv4.MessageTypeRelease:
		if !broadcast && !asked && named && ciaddr && fromOwn {
			return "release"
		}
	case dhcpv4.MessageTypeDecline:
		if broadcast && asked && named && !ciaddr {
			return "decline"
		}
	}
	return fmt.Sprintf("wrong %v", m.MessageType())
}

// took returns what was sent, ARP aside, and forgets it.
func (s *stage) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kinds []string
	for _, f := range s.sent {
		if f.dhcp != nil {
			kinds = append(kinds, f.kind())
		}
	}
	s.sent = nil
	return kinds
}

// heard returns what the callbacks were told, and forgets it.
func (s *stage) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	return told
}

func client() Client { return Client{Netns: "/run/netns/pod", IfName: "net1", Config: testConfig()} }

// acquire gets the lease of a key, which has to succeed.
func (s *stage) acquire(key string) Lease {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), budget)
	defer cancel()
	lease, err := s.k.Acquire(ctx, key, client())
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// lease sets the lease time of a server's answer.
func leaseTime(d time.Duration) edit {
	n := uint32(d / time.Second)
	return option(dhcpv4.OptionIPAddressLeaseTime, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func silent(sent) [][]byte { return nil }

// nak refuses each REQUEST, and is honest otherwise.
func nak(s sent) [][]byte {
	if s.dhcp.MessageType() == dhcpv4.MessageTypeRequest {
		return [][]byte{serverFrame(answer(s.dhcp.TransactionID, dhcpv4.MessageTypeNak))}
	}
	return honest(s)
}
