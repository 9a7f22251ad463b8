// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller/policy"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

func directions() []policy.Direction {
	return []policy.Direction{policy.Ingress, policy.Egress}
}

// desiredPolicy is a policy's port group, and the ACLs for what it allows.
func (in *inputs) desiredPolicy(k key) outcome {
	p := in.regulations.placed[k.regulation()][k.network]
	return outcome{rows: in.withPorts(p.compiled.Rows)}
}

// desiredDeny is the port group of the pods of a namespace that some policy
// isolates in a direction, and the ACLs that do that.
func (in *inputs) desiredDeny(k key) outcome {
	d := policy.Direction(k.name)
	for _, p := range in.regulations.policies[locality{k.network, k.namespace}] {
		if p.policy().Isolates(d) {
			return outcome{rows: in.withPorts(in.compiler(k.network).DefaultDeny(k.namespace, d))}
		}
	}
	return outcome{}
}

// withPorts are rows with the members of the port groups.
func (in *inputs) withPorts(rows nbdb.Rows) nbdb.Rows {
	var groups []nbdb.PortGroup
	for _, g := range rows.PortGroups {
		g.Ports = in.roll.row(g.Name)
		groups = append(groups, g)
	}
	rows.PortGroups = groups
	return rows
}

// desiredQoS are the rules of a QoS while there is an address that they are for.
func (in *inputs) desiredQoS(k key) outcome {
	c := in.regulations.placed[k.regulation()][k.network].compiled
	if c.Source == "" || in.roll.row(c.Source).Len() == 0 {
		return outcome{}
	}
	return outcome{rows: c.Rows}
}

// presence is what a port is to others on its network.
type presence struct {
	network string // "" for a port that is nothing to them
	port    string // the row's name, "" for one of another zone
	addrs   []string
}

// presence is what a port of an active pod is, or is about to be. One that is to
// go is no longer reached by its addresses, and denied what it was until it is
// gone.
func (in *inputs) presence(k key) presence {
	p := in.pods[k.podName()]
	if p == nil || !p.active {
		return presence{}
	}
	var out presence
	held := in.rows[k]
	if held.present {
		out.network, out.port = held.network, podnet.PortName(k.nadKey, k.namespace, k.pod)
	}
	switch d := in.desiredPort(k); {
	case len(d.rows.Ports) > 0:
		row := d.rows.Ports[0]
		out = presence{network: row.ExternalIDs[in.idPrefix+"network"], port: row.Name}
		for _, addresses := range row.Addresses { // the MAC address is first
			out.addrs = strings.Fields(addresses)[1:]
		}
	case d.keep && held.present:
		out.addrs = strings.Fields(held.addrs)
	case in.placeOf(p) != here:
		if r := in.rulings.nads[k.nad()]; r.conf != nil && (!held.present || held.network == r.network) {
			out.network, out.addrs = r.network, in.addressesElsewhere(k, r.network)
		}
	}
	return out
}

// addressesElsewhere are those of a port of another zone.
func (in *inputs) addressesElsewhere(k key, network string) []string {
	var out []string
	if _, e, ok := in.entryOf(k); ok {
		addrs, _ := in.addresses(k, e, network)
		for _, a := range addrs {
			out = append(out, a.String())
		}
	}
	return out
}

// regulated are what a port belongs to by the regulations on its network: the
// groups of the policies that select its pod, and the address sets.
func (in *inputs) regulated(k key) []membership {
	if len(in.regulations.placed) == 0 {
		return nil
	}
	port := in.presence(k)
	if port.network == "" {
		return nil
	}
	var out []membership
	labels, namespaceLabels := in.pods[k.podName()].labels, in.labelsOf(k.namespace)
	if port.port != "" {
		isolated := map[policy.Direction]bool{}
		for o, p := range in.regulations.policies[locality{port.network, k.namespace}] {
			if !p.policy().Pods.Matches(k.namespace, namespaceLabels, labels) {
				continue
			}
			out = append(out, membership{regulationKey(o, port.network), p.compiled.Rows.PortGroups[0].Name, port.port})
			for _, d := range directions() {
				isolated[d] = isolated[d] || p.policy().Isolates(d)
			}
		}
		for d, yes := range isolated {
			if yes {
				deny := in.compiler(port.network).DenyGroup(k.namespace, d)
				out = append(out, membership{denyKey(port.network, k.namespace, d), deny.Name, port.port})
			}
		}
	}
	if len(port.addrs) == 0 {
		return out
	}
	for _, namespace := range []string{k.namespace, ""} {
		for name, s := range in.regulations.setsAt[locality{port.network, namespace}] {
			if !s.Selector.Matches(k.namespace, namespaceLabels, labels) {
				continue
			}
			for _, a := range port.addrs {
				out = append(out, membership{setKey(port.network, name), name, a})
			}
		}
	}
	return out
}
