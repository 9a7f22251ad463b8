// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// An address belongs to one port of a network at a time. Who has it keeps it,
// else the older pod gets it, else the one whose namespace and name come first.

// macHolder is the port that keeps k from having a MAC address on a network.
func (in *inputs) macHolder(k key, mac, network string) (key, bool) {
	return in.holder(k, network, in.byMAC.of(mac), func(k key) claim { return in.claimOfMAC(k, mac) })
}

// addresses are those of an attachment that its port gets, and what is wrong with
// others: of two ports with one address, the one that is not to have it goes
// without, and both are told of.
func (in *inputs) addresses(k key, e entry, network string) (addrs []netip.Addr, problems []problem) {
	for _, p := range e.addrs {
		a := p.Addr()
		claims := func(k key) claim { return in.claimOfIP(k, a) }
		note := func(format string, other key) {
			problems = append(problems, problem{podObject(k.podName()), ReasonAddressInUse,
				fmt.Sprintf("address %s on network %q "+format, a, network, other.podName(), other.nadKey)})
		}
		if holder, ok := in.holder(k, network, in.byIP.of(a.String()), claims); ok {
			note("is not given to this pod, since pod %s (attachment %s) has it", holder)
			continue
		}
		addrs = append(addrs, a)
		if rival, ok := in.rival(k, network, in.byIP.of(a.String()), claims); ok {
			note("is wanted by pod %s (attachment %s) too, and stays with this pod", rival)
		}
	}
	return addrs, problems
}

// claim is how a port stands towards an address.
type claim struct {
	// wants is an active pod's that says so.
	wants bool
	// has is one that has it already.
	has bool
	// weak is one that nothing has confirmed, or no longer.
	weak bool
}

// holder is the first of some ports on a network with a better right to an
// address than k, which wants it.
func (in *inputs) holder(k key, network string, ports iter.Seq[key], of func(key) claim) (key, bool) {
	var holders []key
	for other := range ports {
		if other != k && in.networkOf(other) == network && !in.sameVM(other, k) && in.precedes(other, of(other), k, of(k)) {
			holders = append(holders, other)
		}
	}
	if len(holders) == 0 {
		return key{}, false
	}
	return slices.MinFunc(holders, key.compare), true
}

// rival is the first of some ports on a network that wants an address which k has
// the better right to.
func (in *inputs) rival(k key, network string, ports iter.Seq[key], of func(key) claim) (key, bool) {
	var rivals []key
	for other := range ports {
		if other != k && of(other).wants && in.networkOf(other) == network && !in.sameVM(other, k) {
			rivals = append(rivals, other)
		}
	}
	if len(rivals) == 0 {
		return key{}, false
	}
	return slices.MinFunc(rivals, key.compare), true
}

// precedes reports whether port a has a better right to an address than port b,
// which wants it.
func (in *inputs) precedes(a key, ofA claim, b key, ofB claim) bool {
	switch {
	case ofA.weak != ofB.weak && (ofA.has || ofA.wants):
		return ofB.weak
	case ofA.has != ofB.has:
		return ofA.has
	case !ofA.wants:
		return false
	}
	pa, pb := in.pods[a.podName()], in.pods[b.podName()]
	return cmp.Or(pa.created.Compare(pb.created), a.compare(b)) < 0
}

// entryOf is what an active pod's annotation says about a port.
func (in *inputs) entryOf(k key) (p *pod, e entry, ok bool) {
	p = in.pods[k.podName()]
	if p == nil || !p.active {
		return nil, entry{}, false
	}
	e, ok = p.entry(k)
	return p, e, ok && e.err == nil
}

// claimOfMAC is how a port stands towards a MAC address. The ports of other zones
// can't be seen; an address in the pod's annotation shows that there is one.
func (in *inputs) claimOfMAC(k key, mac string) claim {
	p, e, ok := in.entryOf(k)
	c := claim{wants: ok && e.mac == mac, has: in.rows[k].mac == mac}
	c.has = c.has || c.wants && in.placeOf(p) != here && len(e.addrs) > 0
	return c
}

// claimOfIP is how a port stands towards an IP address.
func (in *inputs) claimOfIP(k key, a netip.Addr) claim {
	p, e, ok := in.entryOf(k)
	if _, wants := e.prefix(a); ok && wants {
		return claim{
			wants: true,
			has:   in.rows[k].hasAddr(a) || in.placeOf(p) != here,
			weak:  p.open(e) || e.state == podnet.StateLost,
		}
	}
	// The row of a pod that no longer wants it.
	return claim{has: in.rows[k].hasAddr(a), weak: true}
}

// awaited reports whether the pod of a virtual machine waits for the MAC address of
// a port that is no longer wanted, as when the machine was started again. Nothing
// has to pass such a port any more: a guest's lease is not released for it.
func (in *inputs) awaited(k key) bool {
	h := in.rows[k]
	for other := range in.byMAC.of(h.mac) {
		if p, e, ok := in.entryOf(other); ok && other != k && p.vm != "" && e.mac == h.mac && in.networkOf(other) == h.network {
			return true
		}
	}
	return false
}
