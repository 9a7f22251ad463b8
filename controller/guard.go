// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller/policy"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// compiler makes the rows of a network that policies and guards consist of.
func (in *inputs) compiler(network string) policy.Network {
	return policy.Network{Name: network, IDPrefix: in.idPrefix}
}

// hasVMs reports whether virtual machines are on a network, also by ports that stay
// though what is wanted of them is not known.
func (in *inputs) hasVMs(network string) bool {
	for _, n := range in.rulings.networks[network] {
		if in.vmsByNAD.has(n.name) {
			return true
		}
	}
	for k := range in.heldByNet.of(network) {
		if p := in.pods[k.podName()]; p != nil && p.active && p.vm != "" {
			return true
		}
	}
	return false
}

// guard notes whether a network needs the guard of open ports, which only
// virtual machines have. If that has changed, all ports have to say again what
// they belong to.
func (in *inputs) guard(network string) {
	needed := in.hasVMs(network)
	if needed == in.guarded[network] {
		return
	}
	if in.guarded[network] = needed; !needed {
		delete(in.guarded, network)
	}
	for _, n := range in.rulings.networks[network] {
		in.touch(in.byNAD.of(n.name))
	}
	in.touch(in.heldByNet.of(network))
}

// guardRows are those that keep the network's ports from harming others.
func (in *inputs) guardRows(n *nad) nbdb.Rows {
	rows := nbdb.Rows{}
	if !n.conf.AllowDHCPServer {
		name := n.conf.Name
		rows.ACLs = in.compiler(name).DHCPServerGuard(podnet.SwitchName(name), podnet.LocalnetPortName(name))
	}
	if in.guarded[n.conf.Name] {
		open := in.compiler(n.conf.Name).OpenPortGuard()
		open.PortGroups[0].Ports = in.roll.row(open.PortGroups[0].Name)
		open.AddressSets[0].Addresses = in.roll.row(open.AddressSets[0].Name)
		rows.PortGroups, rows.AddressSets = open.PortGroups, open.AddressSets
		rows.ACLs = append(rows.ACLs, open.ACLs...)
	}
	return rows
}

// guardMemberships are what a port belongs to so that open ports are guarded:
// while it is open, to those, else its addresses to what is not theirs. A guest
// whose address is another port's is held to none, and so is as good as open: with
// another guest's client identifier it gets that one's lease. Nobody may speak for
// the gateway and the DHCP server.
func (in *inputs) guardMemberships(k key, p *pod, e entry, network string) []membership {
	if !in.guarded[network] {
		return nil
	}
	ports, taken := in.compiler(network).OpenPorts().Name, in.compiler(network).PinnedAddresses().Name
	var out []membership
	add := func(row, element string) {
		// One machine can be gateway and DHCP server.
		if m := (membership{networkKey(network), row, element}); !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	addrs, _ := in.addresses(k, e, network)
	open := p.open(e)
	if !open {
		for _, a := range addrs {
			add(taken, a.String())
		}
	}
	if (open || p.vm != "" && len(addrs) == 0) && in.placeOf(p) == here {
		add(ports, podnet.PortName(k.nadKey, k.namespace, k.pod))
	}
	for _, a := range e.gateways {
		if a.Is4() {
			add(taken, a.String())
		}
	}
	if e.server.Is4() {
		add(taken, e.server.String())
	}
	return out
}

// keptMemberships are guardMemberships of a port that stays as it is, since nothing
// is known of it.
func (in *inputs) keptMemberships(k key) []membership {
	h := in.rows[k]
	if !h.present || !in.guarded[h.network] || !in.desiredPort(k).keep {
		return nil
	}
	guard := in.compiler(h.network)
	var out []membership
	addrs := strings.Fields(h.addrs)
	if in.pods[k.podName()].vm != "" && (h.open || len(addrs) == 0) {
		out = append(out, membership{networkKey(h.network), guard.OpenPorts().Name, podnet.PortName(k.nadKey, k.namespace, k.pod)})
	}
	if !h.open {
		for _, a := range addrs {
			out = append(out, membership{networkKey(h.network), guard.PinnedAddresses().Name, a})
		}
	}
	return out
}

// memberships are what a port belongs to.
func (in *inputs) memberships(k key) []membership {
	out := in.regulated(k)
	p, e, ok := in.entryOf(k)
	if r := in.rulings.nads[k.nad()]; ok && r.conf != nil && in.placeOf(p) != unknown {
		return append(out, in.guardMemberships(k, p, e, r.network)...)
	}
	return append(out, in.keptMemberships(k)...)
}

// enrolAll brings up to date what keys belong to, and adds the keys of the rows to
// which that makes a difference.
func (in *inputs) enrolAll(keys map[key]bool) {
	in.place()
	maps.Copy(keys, in.takeDirty())
	for work := keys; len(work) > 0; {
		for k := range work {
			in.enrol(k)
		}
		work = in.takeDirty()
		maps.Copy(keys, work)
	}
}

// enrol looks at what a port belongs to, or at what a network needs.
func (in *inputs) enrol(k key) {
	if k.group == groupNetwork {
		in.guard(k.network)
	}
	if !k.isPort() {
		return
	}
	for _, changed := range in.roll.enrol(k, in.memberships(k)) {
		in.dirty[changed] = true
		in.setChanged(changed.name)
	}
}
