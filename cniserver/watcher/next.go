// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// Next returns the state after what was seen at the time now, and what is to be done,
// in this order. What has become due by then is done first.
func (s State) Next(now time.Time, seen Sighting) (State, []Effect) {
	s.Noticed = maps.Clone(s.Noticed)
	n := &next{State: s, now: wall(now)}
	n.expire()
	n.decide(seen)
	n.reportOpen()
	n.reportClaim()
	n.publish()
	return n.State, n.effects
}

// next is a state in the making.
type next struct {
	State
	now     time.Time
	effects []Effect
}

func (n *next) decide(seen Sighting) {
	switch e := seen.(type) {
	case Probed:
		n.probed(e.Lease)
	case Discover:
		n.startOver()
	case Request:
		if n.Phase == podnet.StateBound && e.Addr.IsValid() && !n.has(e.Addr) {
			// It remembers another address, as from before its node's daemon was down: held
			// to this one, it would not get the answer.
			n.startOver()
		}
	case Nak:
		n.startOver()
		if n.has(e.Addr) {
			n.void()
		}
	case Decline:
		n.startOver()
		if n.has(e.Addr) {
			// It is somebody else's, and OVN answers ARP for what a port has.
			n.drop()
		}
	case Release:
		if n.has(e.Addr) {
			n.startOver()
			n.void()
		}
	case Ack:
		n.granted(e.Lease)
	case ARP:
		n.spoke(e.Sender)
	case Learned:
		n.learned(e.Lease)
	case ForeignMAC:
		n.notice(ReasonForeignMAC, fmt.Sprintf("guest sends frames as %s, which is not its MAC address: port security drops them", e.MAC))
	case ServerTraffic:
		n.notice(ReasonServerTraffic, "guest answers DHCP clients, as a server does: its answers are dropped")
	case Overrun:
		n.notice(ReasonOverrun, fmt.Sprintf("too many frames at the guest's port (%s): some are not looked at", e.Class))
	}
}

// expire ends the lease at its time.
func (n *next) expire() {
	if !n.ended(n.Lease) {
		return
	}
	addr := n.Lease.Addr.Addr()
	switch {
	case n.Confirmed:
		n.Phase = podnet.StateLost
		n.event(true, ReasonLeaseLost, "lease of %s has ended without being renewed: the port has no address", addr)
	case !n.Void:
		n.event(true, ReasonProbeExpired, "guest has not taken %s by the end of its lease: the port has no address", addr)
	}
	n.drop()
}

func (n *next) ended(l dhcp.Lease) bool { return !l.Expires.IsZero() && !n.now.Before(l.Expires) }

// drop takes the address away from the port.
func (n *next) drop() {
	if n.has(n.Probe.Addr.Addr()) {
		n.Probe = dhcp.Lease{}
	}
	n.Lease, n.Confirmed, n.Void = dhcp.Lease{}, false, false
}

// void notes that the address is the guest's no more. Since OVN answers ARP for it, it
// leaves the port long before the lease would have ended: somebody else may get it.
func (n *next) void() {
	n.Confirmed, n.Void = false, true
	if end := n.now.Add(voidLimit); n.Lease.Expires.IsZero() || end.Before(n.Lease.Expires) {
		n.Lease.Expires = end
	}
}

// has tells whether a is the port's address.
func (n *next) has(a netip.Addr) bool { return a.IsValid() && n.Lease.Addr.Addr() == a }

// probed takes the lease of an ADD as the port's, unless the guest has one.
func (n *next) probed(lease dhcp.Lease) {
	switch why := n.unacceptable(lease); {
	case why != "":
		n.notice(ReasonAddressRefused, why)
	case n.ended(lease), n.Confirmed && n.has(lease.Addr.Addr()):
	case n.Confirmed:
		n.effects = append(n.effects, ReleaseProbe{lease})
	default:
		n.open()
		n.Lease, n.Probe, n.Void = lease, lease, false
	}
}

// startOver opens the port for an exchange.
func (n *next) startOver() {
	n.StartedOver = n.now
	n.open()
}

func (n *next) open() {
	if n.Phase != podnet.StateOpen {
		n.Phase, n.Opened, n.Overdue = podnet.StateOpen, n.now, false
		if !n.Claim.Pending {
			n.Claim.Addr = netip.Addr{} // of the time before
		}
	}
}

// granted makes a lease, of an ACK to the guest, the port's.
func (n *next) granted(lease dhcp.Lease) {
	if n.ended(lease) {
		return
	}
	if why := n.unacceptable(lease); why != "" {
		n.notice(ReasonAddressRefused, why)
		return
	}
	addr, old := lease.Addr.Addr(), n.Lease.Addr.Addr()
	if n.has(addr) {
		lease = completed(lease, n.Lease)
	} else if !n.move(addr) {
		return
	} else if old.IsValid() {
		n.event(false, ReasonAddressChanged, "guest has got %s from DHCP server %s, after %s", addr, lease.Server, old)
	}
	n.take(lease)
}

// take makes a lease the port's, and holds the guest to it.
func (n *next) take(lease dhcp.Lease) {
	if probed := n.Probe.Addr.Addr(); probed.IsValid() && probed != lease.Addr.Addr() {
		n.effects = append(n.effects, ReleaseProbe{n.Probe})
	}
	n.Lease = lease
	n.bind()
}

// learned makes an address that OVN has learned the port's. A port that is bound has
// it by an ACK, which counts for more.
func (n *next) learned(lease dhcp.Lease) {
	addr, old := lease.Addr.Addr(), n.Lease.Addr.Addr()
	if n.Phase == podnet.StateBound || role(addr, lease) != "" || !n.has(addr) && (roleBeside(addr, n.Lease) != "" || !n.move(addr)) {
		return
	}
	if old.IsValid() && old != addr {
		n.event(false, ReasonAddressChanged, "guest has chosen %s, after %s", addr, old)
	}
	n.take(lease)
}

// completed is a lease that prolongs old, with what the server, who says what it is
// asked for, left out.
func completed(lease, old dhcp.Lease) dhcp.Lease {
	if lease.Addr.Bits() == 32 {
		lease.Addr = old.Addr
	}
	if !lease.Gateway.IsValid() {
		lease.Gateway = old.Gateway
	}
	return lease
}

// move counts a change of the address; false if there were too many.
func (n *next) move(to netip.Addr) bool {
	n.Moves = recent(n.now, n.Moves)
	if len(n.Moves) >= movesPerMinute {
		n.notice(ReasonAddressRefused, fmt.Sprintf("address %s is refused: it would be more than %d changes in a minute", to, movesPerMinute))
		return false
	}
	n.Moves = append(n.Moves, n.now)
	return true
}

func (n *next) bind() {
	n.Phase, n.Confirmed, n.Void, n.Probe, n.Overdue = podnet.StateBound, true, false, dhcp.Lease{}, false
}

// spoke decides what it means that the guest says by ARP that sender is its address.
func (n *next) spoke(sender netip.Addr) {
	if sender.IsUnspecified() {
		return // it probes, and claims nothing
	}
	role := role(sender, n.Lease)
	switch {
	case role != "":
		n.claimed(sender, fmt.Sprintf("guest claims %s by ARP, which is %s: it is refused", sender, role))
	case n.Phase == podnet.StateLost && n.Chooses:
		n.claimed(sender, "") // OVN hears it: the port is not held to an address
	case n.Phase == podnet.StateBound && !n.has(sender) && n.Chooses && len(recent(n.now, n.Moves)) < movesPerMinute:
		n.startOver() // so that OVN hears the next one
		n.claimed(sender, "")
	case n.Phase == podnet.StateLost:
		n.claimed(sender, fmt.Sprintf("guest claims %s by ARP, but has no lease", sender))
	case n.Phase == podnet.StateBound && !n.has(sender):
		n.claimed(sender, fmt.Sprintf("guest claims %s by ARP, but its lease is of %s: port security drops what it sends from there", sender, n.Lease.Addr.Addr()))
	case n.Phase == podnet.StateBound:
	case !n.has(sender) || n.Void:
		n.claimed(sender, "")
	case n.now.Sub(n.StartedOver) >= exchangeTime:
		n.bind()
	}
}

// unacceptable says why a lease's address can't be a guest's; "" if it can.
func (n *next) unacceptable(lease dhcp.Lease) string {
	addr := lease.Addr.Addr()
	role := role(addr, lease)
	if role == "" && !n.has(addr) {
		role = roleBeside(addr, n.Lease)
	}
	if role == "" {
		return ""
	}
	return fmt.Sprintf("address %s from DHCP server %s is refused: it is %s", addr, lease.Server, role)
}

// role says what an address is, if it is not to be a guest's whatever its lease; ""
// if it is nothing of the kind.
func role(a netip.Addr, of dhcp.Lease) string {
	if !isHost(a) {
		return "no host's address"
	}
	return roleBeside(a, of)
}

// roleBeside says what an address is for somebody who has the lease.
func roleBeside(a netip.Addr, lease dhcp.Lease) string {
	switch subnet := lease.Addr; {
	case a == lease.Gateway:
		return "the gateway's address"
	case a == lease.Server:
		return "the DHCP server's address"
	case !subnet.IsValid() || subnet.Bits() >= 31: // RFC 3021
		return ""
	case a == subnet.Masked().Addr():
		return "the subnet's own address"
	case a == broadcast(subnet):
		return "the subnet's broadcast address"
	}
	return ""
}

// broadcast is a subnet's highest address.
func broadcast(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

// claimed notes a claim, to be reported if there is a message. A guest that claims
// ever other addresses is reported with the latest one.
func (n *next) claimed(a netip.Addr, message string) {
	c := &n.Claim
	if message == "" && c.Pending {
		return
	}
	again := a == c.Reported && n.now.Sub(c.At) < claimRepeat
	c.Addr, c.Message = a, message
	c.Pending = message != "" && (c.Pending || !again)
}

func (n *next) reportClaim() {
	if at := n.Claim.due(); at.IsZero() || n.now.Before(at) {
		return
	}
	n.event(true, ReasonClaimDropped, "%s", n.Claim.Message)
	n.Claim.Pending, n.Claim.Reported, n.Claim.At = false, n.Claim.Addr, n.now
}

func (n *next) reportOpen() {
	if n.Phase != podnet.StateOpen || n.Overdue || n.now.Sub(n.Opened) < openLimit {
		return
	}
	n.Overdue = true
	message := "guest was not seen to get a lease"
	if n.Claim.Addr.IsValid() {
		message += fmt.Sprintf(", and last claimed %s by ARP", n.Claim.Addr)
	}
	n.event(true, ReasonPortOpen, "port security does not hold the guest to an address for %v: %s", openLimit, message)
}

func (n *next) publish() {
	at := n.publishDue()
	if at.IsZero() || n.now.Before(at) {
		return
	}
	n.Published = n.Publication()
	n.Writes = append(recent(n.now, n.Writes), n.now)
	n.effects = append(n.effects, Publish{n.Published})
}

// notice reports an incident, unless one of its kind was reported a moment ago.
func (n *next) notice(reason, message string) {
	if at, ok := n.Noticed[reason]; ok && n.now.Sub(at) < noticeInterval {
		return
	}
	if n.Noticed == nil {
		n.Noticed = map[string]time.Time{}
	}
	n.Noticed[reason] = n.now
	n.event(true, reason, "%s", message)
}

func (n *next) event(warning bool, reason, format string, args ...any) {
	n.effects = append(n.effects, Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}
