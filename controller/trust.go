// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"time"
)

// A port may change its address this often by what a learner has heard.
const (
	maxChanges   = 6
	changesAllow = time.Minute
)

// standing is what is known about a port when a learner has heard that its MAC
// address has an IP address.
type standing struct {
	// own are the addresses that the port has. OVN speaks for them itself, so to
	// hear of one says nothing.
	own []netip.Addr
	// subnet is the network's, invalid while nobody on it has had a lease.
	subnet netip.Prefix
	// gateways and server are the network's, as leases say.
	gateways []netip.Addr
	server   netip.Addr
	// holder is another port that has the address, "" for none.
	holder string
	// changes are the times at which the port has changed its address.
	changes []time.Time
}

// verdict is what to do about a claim.
type verdict struct {
	accept bool
	// reason is why not, "" if there is nothing to say about it.
	reason string
}

// judge decides about an address that a port's guest claims by ARP. Anybody can
// send such; what is refused here would take traffic from somebody else.
func (s standing) judge(now time.Time, ip netip.Addr) verdict {
	refuse := func(format string, args ...any) verdict {
		return verdict{reason: fmt.Sprintf("address %s is not taken from ARP: ", ip) + fmt.Sprintf(format, args...)}
	}
	for _, own := range s.own {
		if own == ip {
			return verdict{}
		}
	}
	switch {
	case !ip.Is4() || ip.IsUnspecified():
		return verdict{} // a probe (RFC 5227), or a network that is not ours
	case ip.IsMulticast() || ip.IsLoopback() || ip.IsLinkLocalUnicast():
		return refuse("no host on a network has such an address")
	case !s.subnet.IsValid():
		return refuse("the network's subnet is not known, since nobody on it has a lease")
	case !s.subnet.Contains(ip):
		return refuse("it is outside the network's subnet, %s", s.subnet.Masked())
	case s.subnet.Bits() < 31 && (ip == s.subnet.Masked().Addr() || ip == broadcast(s.subnet)):
		return refuse("it is the network or broadcast address of %s", s.subnet.Masked())
	case ip == s.server:
		return refuse("it is the DHCP server's")
	case s.holder != "":
		return refuse("pod %s has it", s.holder)
	}
	for _, gateway := range s.gateways {
		if ip == gateway {
			return refuse("it is the gateway's")
		}
	}
	if n := recent(now, s.changes); n >= maxChanges {
		return refuse("it would be change %d of the port's address within %v", n+1, changesAllow)
	}
	return verdict{accept: true}
}

// recent is how many of some times are not longer ago than changesAllow.
func recent(now time.Time, times []time.Time) int {
	var n int
	for _, t := range times {
		if now.Sub(t) < changesAllow {
			n++
		}
	}
	return n
}

// broadcast is the last address of an IPv4 subnet.
func broadcast(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		a[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(a)
}
