// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/sbdb"
)

// floodLimit is how many addresses a learner may remember of one port. A guest
// that speaks from more, as one that routes or one that means harm, is not
// listened to for a while.
const floodLimit = 16

// conclusion is what follows from what a learner has heard of one MAC address.
type conclusion struct {
	// port is whose MAC address it is; the zero key if it is nobody's, or of one that
	// is not learned about and doesn't flood. Only useless is set then.
	port key
	// uid is the pod's.
	uid string
	// accept is the port's address from now on, the zero Prefix for none.
	accept netip.Prefix
	// refused says why something that was heard is not accepted, "" for nothing.
	refused string
	// flood is true when too much was heard.
	flood bool
	// superseded is what the learner has no more use for once the port has the
	// address, and useless what it never had any for.
	superseded, useless []sbdb.Lesson
}

// conclude decides what to make of all that the learner of a network has heard of
// a MAC address. By ARP only its owner can have said it: the port security of all
// others keeps them from it, and the learner doesn't hear the physical network. By
// IPv6 neighbor discovery, which no ACL stops, anybody can, as often as he likes.
func (in *inputs) conclude(now time.Time, network, mac string, lessons []sbdb.Lesson) conclusion {
	useless, lessons := split(lessons, func(l sbdb.Lesson) bool { return !l.IP.Is4() })
	k, ok := in.ownerOf(network, mac)
	if !ok || !in.learnsAbout(k) && len(lessons) <= floodLimit {
		return conclusion{useless: useless}
	}
	p, e, _ := in.entryOf(k)
	c := conclusion{port: k, uid: p.uid, flood: len(lessons) > floodLimit, useless: useless}
	_, heard := split(lessons, func(l sbdb.Lesson) bool { _, own := e.prefix(l.IP); return own })
	if c.flood || !p.open(e) {
		// Of a pinned port, it was said before it was pinned.
		c.useless = append(c.useless, heard...)
		return c
	}
	// A probe (RFC 5227) says nothing, and would hide what was said before it.
	_, heard = split(heard, func(l sbdb.Lesson) bool { return l.IP.IsUnspecified() })
	if len(heard) == 0 {
		return c
	}
	slices.SortFunc(heard, func(a, b sbdb.Lesson) int { return cmp.Or(b.Time.Compare(a.Time), a.IP.Compare(b.IP)) })
	latest := heard[0]
	s := in.standing(k, e, network, latest.IP)
	switch v := s.judge(now, latest.IP); {
	case v.accept:
		c.accept = netip.PrefixFrom(latest.IP, s.subnet.Bits())
		c.superseded = slices.DeleteFunc(slices.Clone(lessons), func(l sbdb.Lesson) bool { return l == latest })
	default:
		c.refused = v.reason
	}
	return c
}

// split parts those lessons for which a condition holds from the others.
func split(lessons []sbdb.Lesson, holds func(sbdb.Lesson) bool) (those, others []sbdb.Lesson) {
	for _, l := range lessons {
		if holds(l) {
			those = append(those, l)
		} else {
			others = append(others, l)
		}
	}
	return those, others
}

// ownerOf is the port of a network that has a MAC address, if it is the only one.
func (in *inputs) ownerOf(network, mac string) (k key, ok bool) {
	for other := range in.byMAC.of(mac) {
		if in.networkOf(other) != network {
			continue
		}
		if ok {
			return key{}, false
		}
		k, ok = other, true
	}
	p, _, known := in.entryOf(k)
	if !ok || !known || in.placeOf(p) != here || in.rows[k].mac != mac {
		return key{}, false
	}
	return k, true
}

// learnsAbout reports whether a port's address is taken from what the learner hears.
func (in *inputs) learnsAbout(k key) bool {
	p, n := in.pods[k.podName()], in.nads[k.nad()]
	if p.vm == "" || n == nil || n.conf == nil {
		return false
	}
	learn := cmp.Or(n.conf.Learn, in.learn)
	return learn == podnet.LearnAll || learn == podnet.LearnAuto && n.device
}

// standing is what is known about a port that is heard to have an address.
func (in *inputs) standing(k key, e entry, network string, ip netip.Addr) standing {
	s := standing{gateways: e.gateways, server: e.server, changes: in.changes[k]}
	for _, p := range e.addrs {
		s.own = append(s.own, p.Addr())
	}
	s.subnet = in.subnet(e, network)
	claims := func(k key) claim { return in.claimOfIP(k, ip) }
	for other := range in.byIP.of(ip.String()) {
		if c := claims(other); other != k && (c.wants || c.has) && in.networkOf(other) == network {
			s.holder = other.podName()
		}
	}
	// What open ports may not claim has the gateways and servers of all ports.
	if taken := in.compiler(network).PinnedAddresses().Name; s.holder == "" && in.roll.row(taken).Has(ip.String()) {
		s.gateways = append(slices.Clone(s.gateways), ip)
	}
	return s
}

// subnet is the one of an entry's lease, else that of any other port's on the
// network; invalid if there is none.
func (in *inputs) subnet(e entry, network string) netip.Prefix {
	if len(e.addrs) > 0 {
		return e.addrs[0]
	}
	for _, n := range in.rulings.networks[network] {
		for k := range in.byNAD.of(n.name) {
			if _, e, ok := in.entryOf(k); ok && len(e.addrs) > 0 {
				return e.addrs[0]
			}
		}
	}
	return netip.Prefix{}
}

// changed notes that a port has got another address. Of ports that have not for
// long nothing is kept.
func (in *inputs) changed(now time.Time, k key) {
	maps.DeleteFunc(in.changes, func(_ key, times []time.Time) bool { return recent(now, times) == 0 })
	times := slices.DeleteFunc(in.changes[k], func(t time.Time) bool { return now.Sub(t) >= changesAllow })
	in.changes[k] = append(times, now)
}

// learned is a pod's annotation with the address that a learner has heard of.
func learned(annotation string, k key, address netip.Prefix) (string, error) {
	networks, err := podnet.ParseNetworks(annotation)
	if err != nil {
		return "", err
	}
	e, ok, err := networks.Entry(k.nadKey)
	if err != nil {
		return "", err
	}
	if !ok || e.DHCP != nil && e.DHCP.State == podnet.StateBound {
		return annotation, nil // gone, or confirmed meanwhile by a lease
	}
	status := &podnet.DHCPStatus{State: podnet.StateBound}
	if e.DHCP != nil {
		status.Server = e.DHCP.Server // nobody may claim its address, as before
	}
	e.Addrs, e.DHCP = []netip.Prefix{address}, status
	if networks, err = networks.With(k.nadKey, e); err != nil {
		return "", fmt.Errorf("pod %s: %w", k.podName(), err)
	}
	return networks.String(), nil
}
