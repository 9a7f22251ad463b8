// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// External_ids that OVN-Kubernetes puts on the same rows.
const (
	idTopology = "k8s.ovn.org/topology"
	idNAD      = "k8s.ovn.org/nad"
)

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
	if k.isPort() {
		return in.desiredPort(k)
	}
	served, ok := in.rulings.networks[k.network]
	if len(served) == 0 {
		return outcome{keep: ok}
	}
	return outcome{rows: in.networkRows(served[0])}
}

func (in *inputs) networkRows(n *nad) nbdb.Rows {
	conf := n.conf
	return nbdb.Rows{
		Switches: []nbdb.Switch{{
			Name: podnet.SwitchName(conf.Name),
			ExternalIDs: map[string]string{
				in.idPrefix + "network": conf.Name,
				in.idPrefix + "role":    podnet.RoleSecondary,
				idTopology:              podnet.TopologyLocalnet,
				idDecider:               n.name,
			},
		}},
		Ports: []nbdb.Port{{
			Name:       podnet.LocalnetPortName(conf.Name),
			Switch:     podnet.SwitchName(conf.Name),
			Type:       typeLocalnet,
			Addresses:  []string{"unknown"},
			Options:    map[string]string{optionNetworkName: conf.PhysicalNetworkName},
			TagRequest: conf.VLANID,
		}},
	}
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
	return outcome{rows: in.portRows(k, p, e, r.network)}
}

func (in *inputs) portRows(k key, p *pod, e entry, network string) nbdb.Rows {
	address := e.mac
	for _, a := range e.addrs {
		address += " " + a.String()
	}
	return nbdb.Rows{Ports: []nbdb.Port{{
		Name:         podnet.PortName(k.nadKey, k.namespace, k.pod),
		Switch:       podnet.SwitchName(network),
		Addresses:    []string{address},
		PortSecurity: []string{address},
		Options: map[string]string{
			"iface-id-ver":      p.uid,
			"requested-chassis": in.chassis(p.node),
		},
		ExternalIDs: map[string]string{
			"namespace":             k.namespace,
			"pod":                   "true",
			in.idPrefix + "network": network,
			idNAD:                   k.nadKey,
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

// macHolder is the port that keeps k from having a MAC address on a network.
func (in *inputs) macHolder(k key, mac, network string) (key, bool) {
	var holders []key
	for other := range in.byMAC.of(mac) {
		if other != k && in.networkOf(other) == network && in.precedes(other, k, mac) {
			holders = append(holders, other)
		}
	}
	if len(holders) == 0 {
		return key{}, false
	}
	return slices.MinFunc(holders, key.compare), true
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

// precedes reports whether port a has a better right to a MAC address than port
// b, which is wanted: who has it keeps it, else the older pod gets it, else the
// one whose namespace and name come first.
func (in *inputs) precedes(a, b key, mac string) bool {
	if aHas, bHas := in.hasMAC(a, mac), in.hasMAC(b, mac); aHas != bHas {
		return aHas
	}
	pa, pb := in.pods[a.podName()], in.pods[b.podName()]
	if pa == nil || !pa.active {
		return false
	}
	if e, _ := pa.entry(a); e.mac != mac {
		return false
	}
	return cmp.Or(pa.created.Compare(pb.created), a.compare(b)) < 0
}

// hasMAC reports whether a port has a MAC address already. The ports of other
// zones can't be seen; an address in the pod's annotation shows that there is
// one.
func (in *inputs) hasMAC(k key, mac string) bool {
	if in.rows[k].mac == mac {
		return true
	}
	p := in.pods[k.podName()]
	if p == nil || !p.active || in.placeOf(p) == here {
		return false
	}
	e, _ := p.entry(k)
	return e.mac == mac && len(e.addrs) > 0
}
