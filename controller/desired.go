// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// External_ids that OVN-Kubernetes puts on the same rows.
const (
	idTopology = "k8s.ovn.org/topology"
	idNAD      = "k8s.ovn.org/nad"
)

// idPlugin is on each port: OVN copies it into the southbound database, and by it
// finds those of one controller there.
const idPlugin = "ovn-dhcp-ipam/plugin"

// idDecider names, on a network's switch, the NAD whose configuration it has.
const idDecider = "ovn-dhcp-ipam/nad"

// typeLocalnet and optionNetworkName are OVN's (ovn-nb(5), Logical_Switch_Port).
const (
	typeLocalnet      = "localnet"
	optionNetworkName = "network_name"
)

// outcome is what a key's rows are to be.
type outcome struct {
	rows nbdb.Rows
	// keep is true when nothing is known: what is there stays as it is.
	keep     bool
	problems []problem
}

// desired is what the rows of a key are to be, as a function of the inputs.
func (in *inputs) desired(k key) outcome {
	switch k.group {
	case groupPort:
		return in.desiredPort(k)
	case groupPolicy:
		return in.desiredPolicy(k)
	case groupDeny:
		return in.desiredDeny(k)
	case groupSet:
		return in.desiredSet(k)
	case groupQoS:
		return in.desiredQoS(k)
	}
	served, ok := in.rulings.networks[k.network]
	if len(served) == 0 {
		return outcome{keep: ok}
	}
	return outcome{rows: in.networkRows(served[0])}
}

// networkRows are what a network is made of: a switch that a localnet port joins
// to the physical network, the guards, and a learner where it needs one.
func (in *inputs) networkRows(n *nad) nbdb.Rows {
	conf := n.conf
	rows := in.guardRows(n)
	if in.learns(n.conf.Name) {
		learner := in.learnerRows(conf.Name)
		rows.Routers, rows.RouterPorts, rows.RouterPolicies = learner.Routers, learner.RouterPorts, learner.RouterPolicies
		rows.Ports, rows.ACLs = learner.Ports, append(rows.ACLs, learner.ACLs...)
	}
	rows.Switches = []nbdb.Switch{{
		Name: podnet.SwitchName(conf.Name),
		ExternalIDs: map[string]string{
			in.idPrefix + "network": conf.Name,
			in.idPrefix + "role":    podnet.RoleSecondary,
			idTopology:              podnet.TopologyLocalnet,
			idDecider:               n.name,
		},
	}}
	rows.Ports = append(rows.Ports, nbdb.Port{
		Name:       podnet.LocalnetPortName(conf.Name),
		Switch:     podnet.SwitchName(conf.Name),
		Type:       typeLocalnet,
		Addresses:  []string{"unknown"},
		Options:    map[string]string{optionNetworkName: conf.PhysicalNetworkName},
		TagRequest: conf.VLANID,
	})
	return rows
}

func (in *inputs) desiredPort(k key) outcome {
	p := in.pods[k.podName()]
	if p == nil || !p.active {
		return outcome{}
	}
	switch in.placeOf(p) {
	case unknown:
		return outcome{keep: true}
	case elsewhere:
		return outcome{}
	}
	if p.entries == nil {
		return outcome{keep: true}
	}
	e, ok := p.entry(k)
	if !ok {
		return outcome{}
	}
	// trouble is a port that can't be now: what is there stays when all that
	// is known is that something is wrong.
	trouble := func(keep bool, reason, format string, args ...any) outcome {
		return outcome{keep: keep, problems: []problem{{podObject(k.podName()), reason, fmt.Sprintf(format, args...)}}}
	}
	n := in.nads[k.nad()]
	if n == nil && e.err == nil {
		return trouble(true, ReasonNetworkUnusable, "NetworkAttachmentDefinition %s does not exist", k.nad())
	}
	if n == nil || !n.ours {
		return outcome{}
	}
	if e.err != nil {
		return trouble(true, ReasonInvalidAnnotation, "%v", e.err)
	}
	r := in.rulings.nads[k.nad()]
	if r.conf == nil {
		return trouble(true, ReasonNetworkUnusable, "NetworkAttachmentDefinition %s is refused: %s", k.nad(), r.message)
	}
	if twin, ok := in.twin(p, k); ok {
		return trouble(false, ReasonNameCollision, "the ports of attachments %s and %s would have the same name", twin.nadKey, k.nadKey)
	}
	if holder, ok := in.macHolder(k, e.mac, r.network); ok {
		return trouble(false, ReasonMACInUse, "MAC address %s is in use on network %q by pod %s (attachment %s)",
			e.mac, r.network, holder.podName(), holder.nadKey)
	}
	addrs, problems := in.addresses(k, e, r.network)
	rows := in.portRows(k, p, e.mac, addrs, p.open(e), r.network)
	if in.migratesTo(k, p) {
		rows = prepared(rows, e.mac)
	}
	return outcome{rows: rows, problems: problems}
}

// portRows is the port of an attachment. Its port security holds the MAC address
// alone while it is open.
func (in *inputs) portRows(k key, p *pod, mac string, addrs []netip.Addr, open bool, network string) nbdb.Rows {
	address := mac
	for _, a := range addrs {
		address += " " + a.String()
	}
	security := address
	if open {
		security = mac
	}
	return nbdb.Rows{Ports: []nbdb.Port{{
		Name:         podnet.PortName(k.nadKey, k.namespace, k.pod),
		Switch:       podnet.SwitchName(network),
		Addresses:    []string{address},
		PortSecurity: []string{security},
		Options: map[string]string{
			"iface-id-ver":      p.uid,
			"requested-chassis": in.chassis(p.node),
		},
		ExternalIDs: map[string]string{
			"namespace":             k.namespace,
			"pod":                   "true",
			in.idPrefix + "network": network,
			idNAD:                   k.nadKey,
			idPlugin:                in.plugin,
			idTopology:              podnet.TopologyLocalnet,
		},
	}}}
}

// twin is another attachment of the pod whose port has the name of k's, and the
// better right to it. Attachment n of NAD x has the name of NAD x-n's first.
func (in *inputs) twin(p *pod, k key) (key, bool) {
	for _, e := range p.entries {
		other := e.key
		n := in.nads[other.nad()]
		if other == k || n == nil || !n.ours || podnet.Prefix(other.nadKey) != podnet.Prefix(k.nadKey) {
			continue
		}
		if has := in.rows[other].present; has || !in.rows[k].present && other.nadKey < k.nadKey {
			return other, true
		}
	}
	return key{}, false
}

// networkOf is the network whose port a key is, or is to be.
func (in *inputs) networkOf(k key) string {
	if h := in.rows[k]; h.present {
		return h.network
	}
	if r := in.rulings.nads[k.nad()]; r.conf != nil {
		return r.network
	}
	return ""
}
