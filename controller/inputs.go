// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"iter"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// inputs are what is known of the objects and of our rows, and which keys are
// to be looked at because some of it changed. It does no I/O and is not safe
// for concurrent use.
type inputs struct {
	idPrefix string // of the external_ids that name a network and its role
	zone     string // ours, "" without zones

	nads       map[string]*nad // by namespace/name
	nadsStale  bool            // nads changed since the rulings
	rulings    *rulings
	pods       map[string]*pod // by namespace/name, of all zones
	nodes      map[string]*node
	rows       map[key]held // what the database holds, as last seen
	byMAC      index[key]   // ports, wanted or held
	byNAD      index[key]
	byPod      index[key]
	heldByNet  index[key] // ports that are held, by network
	podsByNode index[string]
	dirty      map[key]bool
}

// index is a set of keys for each of some values. It counts how often a key was
// added, since a port is both wanted by a pod and held by the database.
type index[K comparable] map[string]members[K]

// members are the keys of one value, and how often each was added. Most values
// have one key, and a map for it would take ten times the memory.
type members[K comparable] struct {
	first  K
	n      int // how often first was added, at least once
	others map[K]int
}

func (x index[K]) add(value string, k K, n int) {
	m, ok := x[value]
	switch {
	case !ok:
		m.first, m.n = k, n
	case m.first == k:
		m.n += n
	case m.others == nil:
		m.others = map[K]int{k: n}
	default:
		m.others[k] += n
		if m.others[k] == 0 {
			delete(m.others, k)
		}
	}
	if m.n == 0 {
		for m.first, m.n = range m.others {
			delete(m.others, m.first)
			break
		}
	}
	if x[value] = m; m.n == 0 {
		delete(x, value)
	}
}

// of are the keys of a value.
func (x index[K]) of(value string) iter.Seq[K] {
	return func(yield func(K) bool) {
		m, ok := x[value]
		if !ok || !yield(m.first) {
			return
		}
		for k := range m.others {
			if !yield(k) {
				return
			}
		}
	}
}

func (x index[K]) has(value string) bool { return x[value].n > 0 }

// held is what matters of the rows of a key.
type held struct {
	present bool
	network string
	mac     string // of a port
	// Of a network: the NAD that it is made of, and what that said.
	decider, physical string
	vlan              int
}

func newInputs(pluginType, zone string) *inputs {
	in := &inputs{
		idPrefix:   "ovn-dhcp-ipam/",
		zone:       zone,
		nads:       map[string]*nad{},
		rulings:    rule(nil, nil),
		pods:       map[string]*pod{},
		nodes:      map[string]*node{},
		rows:       map[key]held{},
		byMAC:      index[key]{},
		byNAD:      index[key]{},
		byPod:      index[key]{},
		heldByNet:  index[key]{},
		podsByNode: index[string]{},
		dirty:      map[key]bool{},
	}
	if pluginType == DefaultPluginType {
		in.idPrefix = "k8s.ovn.org/"
	}
	return in
}

func (in *inputs) takeDirty() map[key]bool {
	keys := in.dirty
	in.dirty = map[key]bool{}
	return keys
}

func (in *inputs) touch(keys iter.Seq[key]) {
	for k := range keys {
		in.dirty[k] = true
	}
}

// setPod sets a pod; nil is one that is gone.
func (in *inputs) setPod(name string, p *pod) {
	old := in.pods[name]
	if old == p || old != nil && p != nil && old.same(p) {
		return
	}
	in.touch(in.byPod.of(name))
	if old != nil {
		in.count(name, old, -1)
		delete(in.pods, name)
	}
	if p != nil {
		in.count(name, p, +1)
		in.pods[name] = p
	}
	in.touch(in.byPod.of(name))
}

// count adds a pod to the indexes or takes it out. Whoever has, or had, the
// same MAC address may now have, or lose, the right to it.
func (in *inputs) count(name string, p *pod, n int) {
	in.podsByNode.add(p.node, name, n)
	for _, e := range p.entries {
		in.byPod.add(name, e.key, n)
		in.byNAD.add(e.key.nad(), e.key, n)
		if p.active && e.err == nil {
			in.touch(in.byMAC.of(e.mac))
			in.byMAC.add(e.mac, e.key, n)
		}
	}
}

// setNAD sets a NAD; nil is one that is gone.
func (in *inputs) setNAD(name string, n *nad) {
	old := in.nads[name]
	if old == n || old != nil && n != nil && old.config == n.config && old.created.Equal(n.created) {
		return
	}
	in.nadsStale = true
	if in.nads[name] = n; n == nil {
		delete(in.nads, name)
	}
	// Also for those that are not ours, and so are not ruled on.
	in.touch(in.byNAD.of(name))
}

// setNode sets a node; nil is one that is gone. It returns false when that
// changes nothing.
func (in *inputs) setNode(name string, n *node) bool {
	old := in.nodes[name]
	if old == n || old != nil && n != nil && *old == *n {
		return false
	}
	if in.nodes[name] = n; n == nil {
		delete(in.nodes, name)
	}
	for pod := range in.podsByNode.of(name) {
		in.touch(in.byPod.of(pod))
		// Also those whose right to a MAC address depends on where the pod is.
		for _, e := range in.pods[pod].entries {
			in.touch(in.byMAC.of(e.mac))
		}
	}
	return true
}

// rule rules on the NADs again if they have changed. It returns false if not.
func (in *inputs) rule() bool {
	if !in.nadsStale {
		return false
	}
	in.nadsStale = false
	old := in.rulings
	in.rulings = rule(in.nads, in)
	for _, r := range []*rulings{old, in.rulings} {
		for name, ruling := range r.nads {
			if old.nads[name] == in.rulings.nads[name] {
				continue
			}
			in.touch(in.byNAD.of(name))
			if ruling.network != "" {
				in.dirty[key{network: ruling.network}] = true
			}
		}
	}
	return true
}

// nadProblems are what is wrong with NADs.
func (in *inputs) nadProblems() []problem {
	var problems []problem
	for name, r := range in.rulings.nads {
		if r.reason != "" {
			problems = append(problems, problem{nadObject(name), r.reason, r.message})
		}
	}
	return problems
}

// observe notes what the database holds under a key, and marks what waits for
// that: a MAC address or a name that has become free, a network whose last port
// has gone.
func (in *inputs) observe(k key, owned nbdb.Rows) {
	old, now := in.rows[k], in.heldIn(owned)
	if old == now {
		return
	}
	if in.rows[k] = now; !now.present {
		delete(in.rows, k)
	}
	if !k.isPort() {
		for name := range in.rulings.networks {
			if name != k.network && podnet.SwitchName(name) == podnet.SwitchName(k.network) {
				in.dirty[key{network: name}] = true
			}
		}
		return
	}
	in.countHeld(k, old, -1)
	in.countHeld(k, now, +1)
	if old.present && !in.heldByNet.has(old.network) {
		in.dirty[key{network: old.network}] = true
		in.nadsStale = true // one may have waited for that
	}
	for other := range in.byPod.of(k.podName()) {
		if other != k && podnet.Prefix(other.nadKey) == podnet.Prefix(k.nadKey) {
			in.dirty[other] = true
		}
	}
}

func (in *inputs) countHeld(k key, h held, n int) {
	if !h.present {
		return
	}
	in.byPod.add(k.podName(), k, n)
	in.byNAD.add(k.nad(), k, n)
	in.heldByNet.add(h.network, k, n)
	in.byMAC.add(h.mac, k, n)
	for other := range in.byMAC.of(h.mac) {
		if other != k {
			in.dirty[other] = true
		}
	}
}

// heldIn is what matters of rows.
func (in *inputs) heldIn(owned nbdb.Rows) held {
	h := held{present: !owned.Empty()}
	for _, p := range owned.Ports {
		h.network = p.ExternalIDs[in.idPrefix+"network"]
		if len(p.Addresses) > 0 {
			h.mac, _, _ = strings.Cut(p.Addresses[0], " ")
		}
	}
	for _, s := range owned.Switches {
		h.decider = s.ExternalIDs[idDecider]
	}
	for _, p := range owned.Ports {
		if p.Type == typeLocalnet {
			h.physical, h.vlan = p.Options[optionNetworkName], p.TagRequest
		}
	}
	return h
}

// turnsOver reports whether a network that pods are on would become another one
// by this NAD, when the NAD that it is made of is gone or not valid.
func (in *inputs) turnsOver(n *nad) bool {
	h := in.rows[key{network: n.conf.Name}]
	return h.present && h.decider != "" && h.decider != n.name && in.heldByNet.has(n.conf.Name) &&
		(h.physical != n.conf.PhysicalNetworkName || h.vlan != n.conf.VLANID)
}

// incumbent reports whether a network that is there is made of this NAD.
func (in *inputs) incumbent(n *nad) bool {
	return n.conf != nil && in.rows[key{network: n.conf.Name}].decider == n.name
}

// all are all keys that have or want rows.
func (in *inputs) all() map[key]bool {
	keys := map[key]bool{}
	for k := range in.rows {
		keys[k] = true
	}
	for name := range in.rulings.networks {
		keys[key{network: name}] = true
	}
	for pod := range in.byPod {
		for k := range in.byPod.of(pod) {
			keys[k] = true
		}
	}
	return keys
}
