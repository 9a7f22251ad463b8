// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func guestMAC() []byte { return []byte{0x0a, 0x58, 0, 0, 0, 7} }

const (
	open  = podnet.StateOpen
	bound = podnet.StateBound
	lost  = podnet.StateLost
)

// leaseOf is a lease of an hour from the given time.
func leaseOf(addr string, from time.Time) dhcp.Lease {
	return dhcp.Lease{
		Addr: netip.MustParsePrefix(addr + "/24"), Gateway: netip.MustParseAddr("192.0.2.1"), Server: netip.MustParseAddr("192.0.2.2"),
		HardwareAddr: guestMAC(), ClientID: []byte{1, 2}, Acquired: from, Expires: from.Add(time.Hour),
	}
}

// chosen is what OVN learns of a guest that has chosen its address.
func chosen(addr string) dhcp.Lease {
	return dhcp.Lease{Addr: netip.MustParsePrefix(addr + "/24"), Gateway: netip.MustParseAddr("192.0.2.1"), HardwareAddr: guestMAC(), ClientID: []byte{}}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func arp(s string) ARP { return ARP{Sender: addr(s)} }

// after is the state after sightings that follow each other by a second, and when
// that is.
func after(s State, now time.Time, seen ...Sighting) (State, time.Time) {
	for _, e := range seen {
		now = now.Add(time.Second)
		s, _ = s.Next(now, e)
	}
	return s, now
}

// situation is a state to begin a test with.
func situation(t *testing.T, name string) (State, time.Time) {
	t.Helper()
	t0 := start()
	s := NewState(t0)
	ack := Ack{leaseOf("192.0.2.10", t0)}
	switch name {
	case "open, no address":
		return s, t0.Add(20 * time.Second)
	case "open, probed":
		s, _ = after(s, t0, Probed{leaseOf("192.0.2.10", t0)})
		return s, t0.Add(20 * time.Second)
	case "open, started over":
		s, _ = after(s, t0, ack, Discover{})
		return s, t0.Add(5 * time.Second)
	case "open, released":
		s, _ = after(s, t0, ack, Release{addr("192.0.2.10")})
		return s, t0.Add(20 * time.Second)
	case "bound":
		s, _ = after(s, t0, ack)
		return s, t0.Add(20 * time.Second)
	case "lost":
		s, _ = after(s, t0, ack)
		s, _ = s.Next(t0.Add(time.Hour), Tick{})
		return s, t0.Add(time.Hour + 20*time.Second)
	}
	t.Fatalf("no situation %q", name)
	return s, t0
}

// said is an effect in short.
func said(effects []Effect) []string {
	out := []string{}
	for _, e := range effects {
		switch e := e.(type) {
		case Publish:
			a := "no address"
			if e.Addr.IsValid() {
				a = e.Addr.String()
			}
			out = append(out, fmt.Sprintf("publish %s %s", e.State, a))
		case ReleaseProbe:
			out = append(out, "release "+e.Lease.Addr.Addr().String())
		case Event:
			out = append(out, e.Reason)
		}
	}
	return out
}

// TestNext goes through each state with each sighting.
func TestNext(t *testing.T) {
	t0 := start()
	const x, y = "192.0.2.10", "192.0.2.20"
	seen := map[string]Sighting{
		"DISCOVER": Discover{}, "REQUEST of x": Request{Addr: addr(x)}, "REQUEST of y": Request{Addr: addr(y)}, "REQUEST": Request{}, "INFORM": Inform{}, "RARP": RARP{}, "gone": Gone{}, "tick": Tick{},
		"NAK of x": Nak{addr(x)}, "NAK of y": Nak{addr(y)}, "DECLINE of x": Decline{addr(x)}, "DECLINE of y": Decline{addr(y)},
		"RELEASE of x": Release{addr(x)}, "RELEASE of y": Release{addr(y)},
		"ACK of x": Ack{leaseOf(x, t0.Add(time.Hour))}, "ACK of y": Ack{leaseOf(y, t0.Add(time.Hour))},
		"ARP of x": arp(x), "ARP of y": arp(y), "ARP probe": arp("0.0.0.0"), "ARP of the gateway": arp("192.0.2.1"),
		"foreign MAC": ForeignMAC{guestMAC()}, "server": ServerTraffic{}, "overrun": Overrun{Class: "x"},
		"probe of x": Probed{leaseOf(x, t0.Add(time.Hour))}, "probe of y": Probed{leaseOf(y, t0.Add(time.Hour))},
		"x learned": Learned{chosen(x)}, "y learned": Learned{chosen(y)}, "gateway learned": Learned{chosen("192.0.2.1")},
	}
	// What is not named changes nothing.
	incidents := map[string][]string{"foreign MAC": {ReasonForeignMAC}, "server": {ReasonServerTraffic}, "overrun": {ReasonOverrun}}
	type outcome struct {
		phase, addr string
		effects     []string
	}
	for _, c := range []struct {
		name, phase, addr string
		want              map[string]outcome
	}{
		{"open, no address", open, "", map[string]outcome{
			"ACK of x":   {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"ACK of y":   {bound, y, []string{"publish bound 192.0.2.20/24"}},
			"probe of x": {open, x, []string{"publish open 192.0.2.10/24"}},
			"probe of y": {open, y, []string{"publish open 192.0.2.20/24"}},
			"x learned":  {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"y learned":  {bound, y, []string{"publish bound 192.0.2.20/24"}},
		}},
		{"open, probed", open, x, map[string]outcome{
			"ACK of x":           {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"ACK of y":           {bound, y, []string{ReasonAddressChanged, "release 192.0.2.10", "publish bound 192.0.2.20/24"}},
			"ARP of x":           {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"ARP of the gateway": {open, x, []string{ReasonClaimDropped}},
			"DECLINE of x":       {open, "", []string{"publish open no address"}},
			"NAK of x":           {open, x, []string{"publish open 192.0.2.10/24"}}, // with another end
			"RELEASE of x":       {open, x, []string{"publish open 192.0.2.10/24"}},
			"probe of x":         {open, x, []string{"publish open 192.0.2.10/24"}}, // with another end
			"probe of y":         {open, y, []string{"publish open 192.0.2.20/24"}},
			"x learned":          {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"y learned":          {bound, y, []string{ReasonAddressChanged, "release 192.0.2.10", "publish bound 192.0.2.20/24"}},
		}},
		{"open, started over", open, x, map[string]outcome{
			"ACK of x":           {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"ACK of y":           {bound, y, []string{ReasonAddressChanged, "publish bound 192.0.2.20/24"}},
			"ARP of the gateway": {open, x, []string{ReasonClaimDropped}},
			"DECLINE of x":       {open, "", []string{"publish open no address"}},
			"probe of y":         {open, x, []string{"release 192.0.2.20"}},
			"x learned":          {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"y learned":          {bound, y, []string{ReasonAddressChanged, "publish bound 192.0.2.20/24"}},
		}},
		{"open, released", open, x, map[string]outcome{
			"ACK of x":           {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"ACK of y":           {bound, y, []string{ReasonAddressChanged, "publish bound 192.0.2.20/24"}},
			"ARP of the gateway": {open, x, []string{ReasonClaimDropped}},
			"DECLINE of x":       {open, "", []string{"publish open no address"}},
			"probe of x":         {open, x, []string{"publish open 192.0.2.10/24"}},
			"probe of y":         {open, y, []string{"publish open 192.0.2.20/24"}},
			"x learned":          {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"y learned":          {bound, y, []string{ReasonAddressChanged, "publish bound 192.0.2.20/24"}},
		}},
		{"bound", bound, x, map[string]outcome{
			"DISCOVER":           {open, x, []string{"publish open 192.0.2.10/24"}},
			"NAK of x":           {open, x, []string{"publish open 192.0.2.10/24"}},
			"NAK of y":           {open, x, []string{"publish open 192.0.2.10/24"}},
			"DECLINE of x":       {open, "", []string{"publish open no address"}},
			"DECLINE of y":       {open, x, []string{"publish open 192.0.2.10/24"}},
			"RELEASE of x":       {open, x, []string{"publish open 192.0.2.10/24"}},
			"ACK of x":           {bound, x, []string{"publish bound 192.0.2.10/24"}}, // with another end
			"ACK of y":           {bound, y, []string{ReasonAddressChanged, "publish bound 192.0.2.20/24"}},
			"ARP of y":           {bound, x, []string{ReasonClaimDropped}},
			"ARP of the gateway": {bound, x, []string{ReasonClaimDropped}},
			"probe of y":         {bound, x, []string{"release 192.0.2.20"}},
			"REQUEST of y":       {open, x, []string{"publish open 192.0.2.10/24"}},
		}},
		{"lost", lost, "", map[string]outcome{
			"DISCOVER":           {open, "", []string{"publish open no address"}},
			"NAK of x":           {open, "", []string{"publish open no address"}},
			"NAK of y":           {open, "", []string{"publish open no address"}},
			"DECLINE of x":       {open, "", []string{"publish open no address"}},
			"DECLINE of y":       {open, "", []string{"publish open no address"}},
			"ACK of x":           {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"ACK of y":           {bound, y, []string{"publish bound 192.0.2.20/24"}},
			"ARP of x":           {lost, "", []string{ReasonClaimDropped}},
			"ARP of y":           {lost, "", []string{ReasonClaimDropped}},
			"ARP of the gateway": {lost, "", []string{ReasonClaimDropped}},
			"probe of x":         {open, x, []string{"publish open 192.0.2.10/24"}},
			"probe of y":         {open, y, []string{"publish open 192.0.2.20/24"}},
			"x learned":          {bound, x, []string{"publish bound 192.0.2.10/24"}},
			"y learned":          {bound, y, []string{"publish bound 192.0.2.20/24"}},
		}},
	} {
		for name, e := range seen {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				s, now := situation(t, c.name)
				before, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				want, ok := c.want[name]
				if !ok {
					want = outcome{c.phase, c.addr, incidents[name]}
				}
				got, effects := s.Next(now, e)
				gotAddr := ""
				if got.Lease.Addr.IsValid() {
					gotAddr = got.Lease.Addr.Addr().String()
				}
				if want.effects == nil {
					want.effects = []string{}
				}
				if diff := cmp.Diff([]any{want.phase, want.addr, want.effects}, []any{got.Phase, gotAddr, said(effects)}); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if unchanged, _ := json.Marshal(s); string(unchanged) != string(before) {
					t.Errorf("the old state was changed: %s, was %s", unchanged, before)
				}
			})
		}
	}
}

// TestChoosing: a guest that may choose its address is let speak from another one, as
// often as an address may change, so that OVN can learn it.
func TestChoosing(t *testing.T) {
	s, now := situation(t, "bound")
	s.Chooses = true
	for i := range movesPerMinute - 1 { // the ACK was one
		a := fmt.Sprintf("192.0.2.%d", 20+i%2*10)
		var effects []Effect
		s, effects = s.Next(now, arp(a))
		// A write may have to wait, but no claim is held against it.
		if s.Phase != open || slices.Contains(said(effects), ReasonClaimDropped) {
			t.Fatalf("change %d: %s %v", i, s.Phase, said(effects))
		}
		if s, _ = s.Next(now.Add(time.Second), Learned{chosen(a)}); s.Phase != bound || s.Lease.Addr.Addr() != addr(a) {
			t.Fatalf("change %d: %s %v", i, s.Phase, s.Lease.Addr)
		}
		now = now.Add(2 * time.Second)
	}
	s, effects := s.Next(now, arp("192.0.2.99"))
	if diff := cmp.Diff([]any{bound, []string{ReasonClaimDropped}}, []any{s.Phase, said(effects)}); diff != "" {
		t.Errorf("one too many (-want +got):\n%s", diff)
	}
	for _, a := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.255"} {
		s, now := situation(t, "bound")
		s.Chooses = true
		if s, effects = s.Next(now, arp(a)); s.Phase != bound || !slices.Equal(said(effects), []string{ReasonClaimDropped}) {
			t.Errorf("%s: %s %v", a, s.Phase, said(effects))
		}
	}
	s, now = situation(t, "lost")
	s.Chooses = true
	if s, effects = s.Next(now, arp("192.0.2.99")); s.Phase != lost || len(effects) != 0 {
		t.Errorf("without a lease: %s %v", s.Phase, said(effects))
	}
}

// TestACKBeforeLearned: what a server grants is not taken away by ARP.
func TestACKBeforeLearned(t *testing.T) {
	s, now := situation(t, "open, probed")
	s, now = after(s, now, Ack{leaseOf("192.0.2.20", now)}, Learned{chosen("192.0.2.30")})
	if s.Phase != bound || s.Lease.Addr.Addr() != addr("192.0.2.20") {
		t.Errorf("%s %v", s.Phase, s.Lease.Addr)
	}
	if s, _ = s.Next(now.Add(time.Hour), Tick{}); s.Phase != lost {
		t.Errorf("at its end: %s", s.Phase)
	}
}

// TestARPAfterStartingOver: while an exchange is under way, the guest's ARP does not
// hold it to its old address; if nothing comes of it, it does.
func TestARPAfterStartingOver(t *testing.T) {
	s, now := situation(t, "open, started over")
	if s, _ = s.Next(now, arp("192.0.2.10")); s.Phase != open {
		t.Errorf("during the exchange: %s", s.Phase)
	}
	if s, _ = s.Next(now.Add(exchangeTime), arp("192.0.2.10")); s.Phase != bound {
		t.Errorf("after the exchange: %s", s.Phase)
	}
}

// TestReleasedAddressIsNotConfirmed: the address that the guest gave back, or a server
// said no to, is not its own by ARP, and leaves the port soon.
func TestReleasedAddressIsNotConfirmed(t *testing.T) {
	for _, e := range []Sighting{Release{addr("192.0.2.10")}, Nak{addr("192.0.2.10")}} {
		s, now := situation(t, "bound")
		s, _ = s.Next(now, e)
		end := now.Add(voidLimit)
		s, _ = s.Next(end.Add(-time.Second), arp("192.0.2.10"))
		s, _ = s.Next(end.Add(-time.Second), e) // that again doesn't help
		if s.Phase != open || s.Confirmed || !s.Lease.Addr.IsValid() || !s.Deadline().Equal(end) {
			t.Errorf("%T: %s, confirmed %v, address %v, deadline %v", e, s.Phase, s.Confirmed, s.Lease.Addr, s.Deadline())
		}
		again, _ := s.Next(end.Add(-time.Second), Ack{leaseOf("192.0.2.10", start().Add(2*time.Hour))})
		if again, _ = again.Next(end, Tick{}); again.Phase != bound {
			t.Errorf("%T: after an ACK: %s", e, again.Phase)
		}
		s, effects := s.Next(end, Tick{})
		if s.Phase != open || s.Lease.Addr.IsValid() {
			t.Errorf("%T: in the end: %s %v", e, s.Phase, s.Lease.Addr)
		}
		if got := said(effects); !slices.Contains(got, "publish open no address") || slices.Contains(got, ReasonLeaseLost) {
			t.Errorf("%T: in the end: %v", e, got)
		}
	}
}

func TestExpiry(t *testing.T) {
	end := start().Add(time.Hour)
	for _, c := range []struct {
		name, phase string
		effects     []string
	}{
		{"open, probed", open, []string{ReasonProbeExpired, "publish open no address"}},
		{"open, started over", lost, []string{ReasonLeaseLost, "publish lost no address"}},
		{"bound", lost, []string{ReasonLeaseLost, "publish lost no address"}},
	} {
		s, now := situation(t, c.name)
		s, _ = s.Next(now.Add(2*time.Minute), Tick{}) // so that it is said that it is open
		if got := s.Deadline(); !got.Equal(end) {
			t.Errorf("%s: deadline %v, want %v", c.name, got, end)
		}
		s, effects := s.Next(end, Tick{})
		if s.Phase != c.phase || s.Lease.Addr.IsValid() || s.Probe.Addr.IsValid() {
			t.Errorf("%s: %+v", c.name, s)
		}
		if diff := cmp.Diff(c.effects, said(effects)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestExpiryComesFirst: an ARP that is seen after the end of the lease confirms nothing.
func TestExpiryComesFirst(t *testing.T) {
	s, _ := situation(t, "open, probed")
	s, _ = s.Next(start().Add(time.Hour), arp("192.0.2.10"))
	if s.Phase != open || s.Lease.Addr.IsValid() {
		t.Errorf("%s %v", s.Phase, s.Lease.Addr)
	}
}

func TestInfiniteLease(t *testing.T) {
	lease := leaseOf("192.0.2.10", start())
	lease.Expires = time.Time{}
	s, now := after(NewState(start()), start(), Ack{lease})
	if got := s.Deadline(); !got.IsZero() {
		t.Errorf("deadline %v", got)
	}
	if s, _ = s.Next(now.Add(100*365*24*time.Hour), Tick{}); s.Phase != bound {
		t.Errorf("phase %s", s.Phase)
	}
}

// TestRefused: what is no guest's address is never a port's, whoever grants it.
func TestRefused(t *testing.T) {
	with := func(prefix string, change func(*dhcp.Lease)) dhcp.Lease {
		l := leaseOf("192.0.2.10", start())
		l.Addr = netip.MustParsePrefix(prefix)
		if change != nil {
			change(&l)
		}
		return l
	}
	elsewhere := func(l *dhcp.Lease) { l.Gateway, l.Server = addr("192.0.2.254"), addr("192.0.2.253") }
	for _, c := range []struct {
		name  string
		lease dhcp.Lease
		role  string
	}{
		{"gateway", with("192.0.2.1/24", nil), "the gateway's address"},
		{"server", with("192.0.2.2/24", nil), "the DHCP server's address"},
		{"gateway that is known", with("192.0.2.1/24", elsewhere), "the gateway's address"},
		{"server that is known", with("192.0.2.2/24", elsewhere), "the DHCP server's address"},
		{"network", with("192.0.2.0/24", nil), "the subnet's own address"},
		{"broadcast", with("192.0.2.255/24", nil), "the subnet's broadcast address"},
		{"broadcast that is known", with("192.0.2.255/23", nil), "the subnet's broadcast address"},
		{"nobody", with("0.0.0.0/24", nil), "no host's address"},
		{"group", with("224.0.0.9/24", nil), "no host's address"},
		{"none", dhcp.Lease{}, "no host's address"},
	} {
		for _, e := range []Sighting{Ack{c.lease}, Probed{c.lease}} {
			s, now := situation(t, "open, probed")
			got, effects := s.Next(now, e)
			if got.Phase != open || got.Lease.Addr != s.Lease.Addr {
				t.Errorf("%s, %T: %s %v", c.name, e, got.Phase, got.Lease.Addr)
			}
			why := fmt.Sprintf("address %s from DHCP server %s is refused: it is %s", c.lease.Addr.Addr(), c.lease.Server, c.role)
			if diff := cmp.Diff([]Effect{Event{true, ReasonAddressRefused, why}}, effects); diff != "" {
				t.Errorf("%s, %T (-want +got):\n%s", c.name, e, diff)
			}
		}
	}
	for _, prefix := range []string{"192.0.2.0/31", "192.0.2.255/32", "192.0.2.255/22"} {
		s, _ := NewState(start()).Next(start(), Ack{with(prefix, nil)})
		if s.Phase != bound {
			t.Errorf("%s is refused", prefix)
		}
	}
}

func TestOldAckIsNoLease(t *testing.T) {
	s, _ := NewState(start()).Next(start().Add(time.Hour), Ack{leaseOf("192.0.2.10", start())})
	if s.Phase != open || s.Lease.Addr.IsValid() {
		t.Errorf("%s %v", s.Phase, s.Lease.Addr)
	}
}

// TestRenewal: a renewal moves the expiry alone, keeps what the server left out, and
// is published once in ten seconds.
func TestRenewal(t *testing.T) {
	s, t0 := after(NewState(start()), start(), Ack{leaseOf("192.0.2.10", start())})
	for i := range 9 {
		now := t0.Add(time.Duration(i+1) * time.Second)
		bare := leaseOf("192.0.2.10", now)
		bare.Addr, bare.Gateway = netip.PrefixFrom(bare.Addr.Addr(), 32), netip.Addr{}
		var effects []Effect
		if s, effects = s.Next(now, Ack{bare}); len(effects) > 0 {
			t.Errorf("second %d: %v", i, said(effects))
		}
	}
	due := t0.Add(expiryInterval)
	if got := s.Deadline(); !got.Equal(due) {
		t.Fatalf("deadline %v, want %v", got, due)
	}
	_, effects := s.Next(due, Tick{})
	want := []Effect{Publish{Publication{State: bound, Addr: netip.MustParsePrefix("192.0.2.10/24"), Gateway: addr("192.0.2.1"),
		Server: addr("192.0.2.2"), Expires: t0.Add(9*time.Second + time.Hour)}}}
	if diff := cmp.Diff(want, effects, compareAddrs, comparePrefixes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOpenForLong: it is reported once per opening, with what the guest claims.
func TestOpenForLong(t *testing.T) {
	s := NewState(start())
	now := start()
	s, _ = s.Next(now.Add(time.Second), arp("198.51.100.7"))
	for range 2 {
		due := now.Add(openLimit)
		s, _ = s.Next(due.Add(-time.Second), Discover{}) // the same opening
		if got := s.Deadline(); !got.Equal(due) {
			t.Fatalf("deadline %v, want %v", got, due)
		}
		var effects []Effect
		s, effects = s.Next(due, Tick{})
		if len(effects) != 1 || effects[0].(Event).Reason != ReasonPortOpen {
			t.Fatalf("effects %v", said(effects))
		}
		t.Log(effects[0].(Event).Message)
		if s, effects = s.Next(due.Add(30*time.Minute), Discover{}); len(effects) != 0 || s.Phase != open {
			t.Fatalf("again: %v, %s", said(effects), s.Phase)
		}
		now = due.Add(30 * time.Minute)
		s, _ = s.Next(now, Ack{leaseOf("192.0.2.10", now)})
		s, _ = s.Next(now, Discover{})
	}
}

// TestClaims: each claim is reported within ten seconds, by at most one Event in that
// time, and a lasting one seldom.
func TestClaims(t *testing.T) {
	s, t0 := situation(t, "bound")
	var at []time.Duration
	see := func(now time.Time, e Sighting) {
		var effects []Effect
		s, effects = s.Next(now, e)
		for _, r := range said(effects) {
			if r != ReasonClaimDropped {
				t.Fatalf("effect %s", r)
			}
			at = append(at, now.Sub(t0))
		}
	}
	see(t0, arp("192.0.2.30"))
	for i := range 5 {
		see(t0.Add(time.Duration(i)*time.Second), arp("192.0.2.30"))
	}
	see(t0.Add(5*time.Second), arp("192.0.2.31"))
	due := s.Deadline()
	see(due, Tick{})
	for i := range 60 {
		see(due.Add(time.Duration(i)*time.Second), arp("192.0.2.31"))
	}
	see(due.Add(claimRepeat), arp("192.0.2.31"))
	want := []time.Duration{0, claimInterval, claimInterval + claimRepeat}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

// TestFlapping: of a hundred addresses in a minute six are taken, the refusals are
// reported once, and afterwards there is room again.
func TestFlapping(t *testing.T) {
	s := NewState(start())
	now := start()
	taken, reported := map[netip.Addr]bool{}, 0
	for i := range 100 {
		now = now.Add(590 * time.Millisecond)
		var effects []Effect
		s, effects = s.Next(now, Ack{leaseOf(fmt.Sprintf("192.0.2.%d", 10+i), now)})
		taken[s.Lease.Addr.Addr()] = true
		for _, r := range said(effects) {
			if r == ReasonAddressRefused {
				reported++
			}
		}
	}
	if len(taken) != movesPerMinute || reported != 1 {
		t.Errorf("%d addresses taken, %d refusals reported", len(taken), reported)
	}
	s, _ = s.Next(now.Add(time.Minute), Ack{leaseOf("192.0.2.200", now)})
	if s.Lease.Addr.Addr() != addr("192.0.2.200") {
		t.Errorf("a minute later: %v", s.Lease.Addr)
	}
}

// TestWritesAreBounded: a guest that starts over all the time costs few writes, and
// what is true in the end is written.
func TestWritesAreBounded(t *testing.T) {
	s := NewState(start())
	now, writes := start(), 0
	for i := range 100 {
		now = now.Add(500 * time.Millisecond)
		e := Sighting(Discover{})
		if i%2 == 1 {
			e = Ack{leaseOf("192.0.2.10", now)}
		}
		var effects []Effect
		s, effects = s.Next(now, e)
		writes += len(effects)
	}
	if writes > writesPerMinute {
		t.Errorf("%d writes", writes)
	}
	s, _ = s.Next(s.Deadline(), Tick{})
	if s.Published.State != bound || !s.Published.equal(s.Publication()) {
		t.Errorf("published %+v, is %+v", s.Published, s.Publication())
	}
}

// TestDeadline: whatever happens, a Tick at the deadline leaves a later one, nothing
// unpublished for long, and a state that survives JSON.
func TestDeadline(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		s, now := NewState(start()), start()
		s.Chooses = seed%2 == 0
		for range 200 {
			now = now.Add(time.Duration(r.IntN(30000)) * time.Millisecond)
			a := fmt.Sprintf("192.0.2.%d", r.IntN(5))
			lease := leaseOf(a, now)
			lease.Expires = now.Add(time.Duration(r.IntN(300)) * time.Second)
			seen := []Sighting{Discover{}, Nak{addr(a)}, Decline{addr(a)}, Release{addr(a)}, Ack{lease}, Ack{lease}, Probed{lease}, Learned{chosen(a)}, arp(a), arp(a), Tick{}}
			s, _ = s.Next(now, seen[r.IntN(len(seen))])
			if at := s.Deadline(); !at.IsZero() {
				if !at.After(now) {
					t.Fatalf("seed %d: deadline %v is not after %v: %+v", seed, at, now, s)
				}
				now = at
				if s, _ = s.Next(now, Tick{}); !s.Deadline().IsZero() && !s.Deadline().After(now) {
					t.Fatalf("seed %d: deadline %v after a tick at %v: %+v", seed, s.Deadline(), now, s)
				}
			}
			if has := s.Lease.Addr.IsValid(); s.Phase == bound && !(has && s.Confirmed) || s.Phase == lost && has {
				t.Fatalf("seed %d: %+v", seed, s)
			}
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back State
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("seed %d: %v: %s", seed, err, b)
		}
		if diff := cmp.Diff(s, back, compareAddrs, comparePrefixes); diff != "" {
			t.Fatalf("seed %d: JSON (-want +got):\n%s", seed, diff)
		}
	}
}
