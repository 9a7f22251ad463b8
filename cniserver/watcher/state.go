// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"net/netip"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// State is what is known of a guest's port, and what has been said of it. It is a
// value: Next returns another one. JSON keeps all of it.
//
// A port is open until there is evidence of its address, and again whenever the guest
// starts over: then port security holds it to its MAC address alone. It is bound, and
// held to its address too, upon an ACK to the guest, the guest's own ARP for the
// address that is known already, or what OVN has learned. It is lost when the lease of
// an address that the guest had ends.
type State struct {
	// Chooses says that the guest may choose its address itself, and OVN learns it. It
	// is the caller's to set.
	Chooses bool `json:"chooses,omitempty"`
	// Phase is podnet.StateOpen, StateBound or StateLost.
	Phase string `json:"phase"`
	// Lease is what the port has its address from; the zero Lease if it has none. It
	// stays while a port is open.
	Lease dhcp.Lease `json:"lease,omitzero"`
	// Confirmed says that the guest was seen to have the lease.
	Confirmed bool `json:"confirmed,omitempty"`
	// Void says that the guest has given the lease back, or a server has said no to
	// it: the address is somebody else's soon, and only an ACK makes it the guest's.
	Void bool `json:"void,omitempty"`
	// Probe is the lease that an ADD got in the guest's name, until the guest has it
	// or another one.
	Probe dhcp.Lease `json:"probe,omitzero"`

	// Opened is when the port became open, and StartedOver when the guest was last seen
	// to look for an address, or to choose one.
	Opened      time.Time `json:"opened,omitzero"`
	StartedOver time.Time `json:"started_over,omitzero"`
	// Overdue says that it was reported that the port is open for long.
	Overdue bool `json:"overdue,omitempty"`

	// Moves are the times of the latest changes of the address.
	Moves []time.Time `json:"moves,omitempty"`
	// Published is what the last Publish said, and Writes are the times of the latest.
	Published Publication `json:"published,omitzero"`
	Writes    []time.Time `json:"writes,omitempty"`

	// Claim is the address that the guest last claimed without having it.
	Claim claim `json:"claim,omitzero"`
	// Noticed is when each kind of incident was last reported.
	Noticed map[string]time.Time `json:"noticed,omitempty"`
}

// NewState is the state of a port at its ADD, without address.
func NewState(now time.Time) State {
	now = wall(now)
	return State{Phase: podnet.StateOpen, Opened: now, Published: Publication{State: podnet.StateOpen}}
}

// Publication is what is to be said of a port to the rest of the world.
type Publication struct {
	// State is podnet.StateOpen, StateBound or StateLost.
	State string `json:"state"`
	// Addr is the zero Prefix, and what follows is zero too, if there is no address.
	Addr    netip.Prefix `json:"addr,omitzero"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
	Server  netip.Addr   `json:"server,omitzero"`
	// Expires is zero for a lease without end.
	Expires time.Time `json:"expires,omitzero"`
}

// Publication is what is true now. It can be ahead of what was published, since that
// happens only so often.
func (s State) Publication() Publication {
	return Publication{State: s.Phase, Addr: s.Lease.Addr, Gateway: s.Lease.Gateway, Server: s.Lease.Server, Expires: s.Lease.Expires}
}

// equal tells whether two publications say the same.
func (p Publication) equal(q Publication) bool {
	return p.sameBut(q) && p.Expires.Equal(q.Expires)
}

// sameBut tells whether two publications differ in Expires at most.
func (p Publication) sameBut(q Publication) bool {
	p.Expires, q.Expires = time.Time{}, time.Time{}
	return p == q
}

// Effect is something to be done: a Publish, ReleaseProbe or Event.
type Effect interface{ effect() }

type (
	// Publish asks to write this into the pod's annotation, in the place of whatever
	// was written before.
	Publish struct{ Publication }

	// ReleaseProbe asks to give back a lease that an ADD got and the guest did not
	// take, since it has another one.
	ReleaseProbe struct{ Lease dhcp.Lease }

	// Event is to be shown on the pod.
	Event struct {
		Warning bool
		// Reason is one of the constants Reason….
		Reason, Message string
	}
)

func (Publish) effect()      {}
func (ReleaseProbe) effect() {}
func (Event) effect()        {}

// Reasons of Events.
const (
	ReasonAddressChanged = "DHCPAddressChanged"
	ReasonAddressRefused = "DHCPAddressRefused"
	ReasonLeaseLost      = "DHCPLeaseLost"
	ReasonProbeExpired   = "DHCPProbeExpired"
	ReasonPortOpen       = "PortSecurityOpen"
	ReasonClaimDropped   = "PortSecurityDropped"
	ReasonForeignMAC     = "ForeignMACDropped"
	ReasonServerTraffic  = "DHCPServerBlocked"
	ReasonOverrun        = "GuestFloods"
)

const (
	// openLimit is how long a port may be open before that is reported.
	openLimit = time.Minute
	// For so long after a guest has started over its ARP is no evidence of the address
	// it had: pinned to it, the port would drop the OFFER of another.
	exchangeTime = 10 * time.Second
	// voidLimit is how long an address that was given back, or said no to, stays with
	// its port, for an ACK of it to follow.
	voidLimit = time.Minute

	// movesPerMinute is how often a port's address may change.
	movesPerMinute = 6
	// writesPerMinute is how often anything is published, and expiryInterval the time
	// between two that differ in Expires alone.
	writesPerMinute = 12
	expiryInterval  = 10 * time.Second

	// claimInterval is the time between two reports of claims, and claimRepeat that
	// between two of the same one.
	claimInterval = 10 * time.Second
	claimRepeat   = 5 * time.Minute
	// noticeInterval is the time between two reports of the same kind of incident.
	noticeInterval = time.Minute
)

// Deadline is when Next is to be called with a Tick; the zero Time if never.
func (s State) Deadline() time.Time {
	at := s.Lease.Expires
	if s.Phase == podnet.StateOpen && !s.Overdue {
		at = earlier(at, s.Opened.Add(openLimit))
	}
	return earlier(earlier(at, s.Claim.due()), s.publishDue())
}

// publishDue is when the next Publish may be, and is to be; zero if all is said.
func (s State) publishDue() time.Time {
	want := s.Publication()
	var at time.Time
	switch {
	case want.equal(s.Published):
		return time.Time{}
	case len(s.Writes) == 0:
		return s.Opened // long since
	case len(s.Writes) >= writesPerMinute:
		at = s.Writes[0].Add(time.Minute)
	}
	last := s.Writes[len(s.Writes)-1]
	if want.sameBut(s.Published) {
		last = last.Add(expiryInterval)
	}
	if at.Before(last) {
		return last
	}
	return at
}

// recent returns those of the times that are within the minute before now.
func recent(now time.Time, times []time.Time) []time.Time {
	var out []time.Time
	for _, t := range times {
		if now.Sub(t) < time.Minute {
			out = append(out, t)
		}
	}
	return out
}

// claim is an address that a guest says is its own although it is not.
type claim struct {
	// Addr is the latest one, and Message what is to be said of it; it is empty if
	// that is not worth an Event.
	Addr    netip.Addr `json:"addr,omitzero"`
	Message string     `json:"message,omitempty"`
	// Pending says that it is yet to be reported; Reported and At are the last report.
	Pending  bool       `json:"pending,omitempty"`
	Reported netip.Addr `json:"reported,omitzero"`
	At       time.Time  `json:"at,omitzero"`
}

// due is when a claim is to be reported; the zero Time if none is.
func (c claim) due() time.Time {
	if !c.Pending {
		return time.Time{}
	}
	return c.At.Add(claimInterval)
}
