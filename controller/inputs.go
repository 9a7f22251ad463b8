// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

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
	byIP       index[key]   // ports, wanted or held
	vmsByNAD   index[key]   // ports of virtual machines, wanted
	byNAD      index[key]
	byPod      index[key]
	heldByNet  index[key]    // ports that are held, by network
	heldOn     index[string] // networks of ports that are held, by NAD
	podsByNode index[string]
	byVM       index[string] // pods, by the virtual machine in them
	dirty      map[key]bool
	roll       roll
	guarded    map[string]bool            // networks with virtual machines, by name
	learn      string                     // for networks that don't say, a Learn constant
	flooding   map[string]map[string]bool // names of ports that flood, by network
	changes    map[key][]time.Time        // when ports have changed their address
	plugin     string
	deaf       bool // nobody reads what learners hear, so there are none

	namespaces      map[string]map[string]string // labels, by name
	podsByNamespace index[string]
	regulations     regulations
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
	// Of a port: its MAC address, and after that its others, with spaces between.
	mac, addrs string
	// open is whether port security has no address but the MAC address.
	open bool
	// bound is whether the northbound database says that OVN has bound it.
	bound bool
	// Of a network: the NAD that it is made of, and what that said.
	decider, physical string
	vlan              int
}

// hasAddr reports whether a port has an IP address.
func (h held) hasAddr(a netip.Addr) bool {
	return slices.Contains(strings.Fields(h.addrs), a.String())
}

func newInputs(pluginType, zone, learn string) *inputs {
	in := &inputs{
		idPrefix:   "ovn-dhcp-ipam/",
		zone:       zone,
		nads:       map[string]*nad{},
		rulings:    rule(nil, nil),
		pods:       map[string]*pod{},
		nodes:      map[string]*node{},
		rows:       map[key]held{},
		byMAC:      index[key]{},
		byIP:       index[key]{},
		vmsByNAD:   index[key]{},
		byNAD:      index[key]{},
		byPod:      index[key]{},
		heldByNet:  index[key]{},
		heldOn:     index[string]{},
		podsByNode: index[string]{},
		byVM:       index[string]{},
		dirty:      map[key]bool{},
		roll:       newRoll(),
		guarded:    map[string]bool{},
		learn:      cmp.Or(learn, podnet.LearnAuto),
		plugin:     pluginType,
		changes:    map[key][]time.Time{},
		flooding:   map[string]map[string]bool{},

		namespaces:      map[string]map[string]string{},
		podsByNamespace: index[string]{},
		regulations:     newRegulations(),
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
// same addresses may now have, or lose, the right to them.
func (in *inputs) count(name string, p *pod, n int) {
	in.podsByNode.add(p.node, name, n)
	in.podsByNamespace.add(p.namespace, name, n)
	if namespace, _, _ := strings.Cut(name, "/"); p.vm != "" {
		vm := vmName(namespace, p)
		for other := range in.byVM.of(vm) {
			in.touch(in.byPod.of(other))
		}
		in.byVM.add(vm, name, n)
	}
	for _, e := range p.entries {
		in.byPod.add(name, e.key, n)
		in.byNAD.add(e.key.nad(), e.key, n)
		if !p.active || e.err != nil {
			continue
		}
		in.touch(in.byMAC.of(e.mac))
		in.byMAC.add(e.mac, e.key, n)
		for _, a := range e.addrs {
			in.touch(in.byIP.of(a.Addr().String()))
			in.byIP.add(a.Addr().String(), e.key, n)
		}
		if p.vm != "" {
			in.countVM(e.key, n)
		}
	}
}

// setNAD sets a NAD; nil is one that is gone.
func (in *inputs) setNAD(name string, n *nad) {
	old := in.nads[name]
	if old == n || old != nil && n != nil && old.same(n) {
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
	in.regulations.unplace(kindPolicy, kindQoS)
	for _, r := range []*rulings{old, in.rulings} {
		for name, ruling := range r.nads {
			if old.nads[name] == in.rulings.nads[name] {
				continue
			}
			in.touch(in.byNAD.of(name))
			if ruling.network != "" {
				in.dirty[networkKey(ruling.network)] = true
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
		if r.conf != nil && r.conf.Learn == podnet.LearnAll && in.deaf {
			problems = append(problems, problem{nadObject(name), ReasonInvalidConfig,
				"learn: \"all\" needs a controller that reads OVN's southbound database (--sb); this one learns nothing from ARP"})
		}
	}
	return problems
}

// observe notes what the database holds under a key.
func (in *inputs) observe(k key, owned nbdb.Rows) { in.hold(k, in.heldIn(k, owned)) }

// wrote notes what was written under a key. That does not change whether OVN has
// bound a port.
func (in *inputs) wrote(k key, rows nbdb.Rows) {
	now := in.heldIn(k, rows)
	now.bound = now.present && in.rows[k].bound
	in.hold(k, now)
}

// hold notes what matters of the rows under a key, and marks what waits for that:
// an address or a name that has become free, a network whose last port has gone.
func (in *inputs) hold(k key, now held) {
	old := in.rows[k]
	if old == now {
		return
	}
	if in.rows[k] = now; !now.present {
		delete(in.rows, k)
	}
	if k.group == groupNetwork {
		for name := range in.rulings.networks {
			if name != k.network && podnet.SwitchName(name) == podnet.SwitchName(k.network) {
				in.dirty[networkKey(name)] = true
			}
		}
	}
	if !k.isPort() {
		return
	}
	in.countHeld(k, old, -1)
	in.countHeld(k, now, +1)
	if old.present && !in.heldByNet.has(old.network) {
		in.dirty[networkKey(old.network)] = true
		in.nadsStale = true // one may have waited for that
	}
	if old.network != now.network && in.guarded[old.network] {
		in.dirty[networkKey(old.network)] = true // it may have been the last machine
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
	in.heldOn.add(k.nad(), h.network, n)
	in.byMAC.add(h.mac, k, n)
	rivals := []iter.Seq[key]{in.byMAC.of(h.mac)}
	for a := range strings.FieldsSeq(h.addrs) {
		in.byIP.add(a, k, n)
		rivals = append(rivals, in.byIP.of(a))
	}
	for _, same := range rivals {
		for other := range same {
			if other != k {
				in.dirty[other] = true
			}
		}
	}
}

// heldIn is what matters of the rows of a key.
func (in *inputs) heldIn(k key, owned nbdb.Rows) held {
	h := held{present: !owned.Empty()}
	for _, s := range owned.Switches {
		h.decider = s.ExternalIDs[idDecider]
	}
	for _, p := range owned.Ports {
		switch {
		case k.isPort():
			h.network, h.bound = p.ExternalIDs[in.idPrefix+"network"], p.Up
			// The target of a migration has no addresses.
			if own := slices.Concat(p.Addresses, p.PortSecurity); len(own) > 0 {
				h.mac, h.addrs, _ = strings.Cut(own[0], " ")
			}
			h.open = !slices.ContainsFunc(p.PortSecurity, func(s string) bool { return strings.Contains(s, " ") })
		case p.Type == typeLocalnet:
			h.physical, h.vlan = p.Options[optionNetworkName], p.TagRequest
		}
	}
	return h
}

// turnsOver reports whether a network that pods are on would become another one
// by this NAD, when the NAD that it is made of is gone or not valid.
func (in *inputs) turnsOver(n *nad) bool {
	h := in.rows[networkKey(n.conf.Name)]
	return h.present && h.decider != "" && h.decider != n.name && in.heldByNet.has(n.conf.Name) &&
		(h.physical != n.conf.PhysicalNetworkName || h.vlan != n.conf.VLANID)
}

// incumbent reports whether a network that is there is made of this NAD.
func (in *inputs) incumbent(n *nad) bool {
	return n.conf != nil && in.rows[networkKey(n.conf.Name)].decider == n.name
}

// all are all keys that have or want rows.
func (in *inputs) all() map[key]bool {
	keys := map[key]bool{}
	for k := range in.rows {
		keys[k] = true
	}
	for name := range in.rulings.networks {
		keys[networkKey(name)] = true
	}
	for pod := range in.byPod {
		for k := range in.byPod.of(pod) {
			keys[k] = true
		}
	}
	for k := range in.regulations.keys() {
		keys[k] = true
	}
	return keys
}

// countVM counts the port of a virtual machine. Its network may need more, or
// less, than it did.
func (in *inputs) countVM(k key, n int) {
	in.vmsByNAD.add(k.nad(), k, n)
	if r := in.rulings.nads[k.nad()]; r.conf != nil {
		in.dirty[networkKey(r.network)] = true
	}
}
