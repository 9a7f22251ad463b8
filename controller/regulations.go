// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"iter"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller/policy"
)

// regulation is a MultiNetworkPolicy or a NetworkQoS. It is not changed once
// made.
type regulation struct {
	source *unstructured.Unstructured
	// policy is one that allows nothing when it can't be read.
	policy *policy.Policy // nil for a QoS
	qos    *policy.QoS    // nil for a policy, and when it can't be read
	err    error          // why it can't be read
}

func parseRegulation(u *unstructured.Unstructured) *regulation {
	r := &regulation{source: u}
	if u.GetKind() == kindPolicy {
		r.policy, r.err = policy.ParsePolicy(u)
	} else {
		r.qos, r.err = policy.ParseQoS(u)
	}
	return r
}

// same reports whether the regulations' rows are the same.
func (r *regulation) same(other *regulation) bool {
	a, b := r.source, other.source
	return a.GetAPIVersion() == b.GetAPIVersion() && reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) &&
		a.GetAnnotations()[policy.PolicyFor] == b.GetAnnotations()[policy.PolicyFor]
}

func (r *regulation) compile(n policy.Network) policy.Compiled {
	switch {
	case r.policy != nil:
		return r.policy.Compile(n)
	case r.qos != nil:
		return r.qos.Compile(n)
	}
	return policy.Compiled{}
}

// problems are what is wrong with a regulation.
func (r *regulation) problems(o object) []problem {
	switch {
	case r == nil || r.err == nil:
		return nil
	case o.kind == kindPolicy:
		return []problem{{o, ReasonInvalidPolicy, r.err.Error() + ": nothing is allowed to the pods that it selects"}}
	}
	return []problem{{o, ReasonInvalidQoS, r.err.Error()}}
}

// locality is a namespace on a network.
type locality struct{ network, namespace string }

// placement is a regulation on one network; the zero value is none.
type placement struct {
	regulation *regulation
	compiled   policy.Compiled
}

// policy is the placed one, nil if it is not one.
func (p placement) policy() *policy.Policy {
	if p.regulation == nil {
		return nil
	}
	return p.regulation.policy
}

// regulations are all of them, and the networks that they are for.
type regulations struct {
	all      map[object]*regulation
	placed   map[object]map[string]placement // then by network
	unplaced map[object]bool                 // their networks may be others by now
	looked   []object                        // placed anew since the loop has looked
	policies map[locality]map[object]placement
	sets     map[string]*sharedSet // by the row's name
	// setsAt are those that pods of a namespace can be in; namespace "" has those
	// for which that depends on the namespaces' labels.
	setsAt map[locality]map[string]*sharedSet
	// concerned are selectors of what has come or gone.
	concerned []concern
}

// concern is a selector of pods, on a network.
type concern struct {
	network string
	pods    *policy.Selector
}

func newRegulations() regulations {
	return regulations{
		all:      map[object]*regulation{},
		placed:   map[object]map[string]placement{},
		unplaced: map[object]bool{},
		policies: map[locality]map[object]placement{},
		sets:     map[string]*sharedSet{},
		setsAt:   map[locality]map[string]*sharedSet{},
	}
}

// unplace notes that all regulations of a kind may be for other networks.
func (r *regulations) unplace(kinds ...string) {
	for o := range r.all {
		for _, kind := range kinds {
			if o.kind == kind {
				r.unplaced[o] = true
			}
		}
	}
}

// absentNADs are a problem of a policy for networks that there aren't.
func (in *inputs) absentNADs(o object, r *regulation) []problem {
	if r.policy == nil {
		return nil
	}
	var out []problem
	for _, nad := range r.policy.NADs {
		if in.nads[nad] == nil {
			out = append(out, problem{o, ReasonNetworkUnusable, fmt.Sprintf("NetworkAttachmentDefinition %s does not exist", nad)})
		}
	}
	return out
}

// takeLooked takes those that were placed anew.
func (r *regulations) takeLooked() []object {
	looked := r.looked
	r.looked = nil
	return looked
}

// keys are those of all rows that regulations need.
func (r *regulations) keys() iter.Seq[key] {
	return func(yield func(key) bool) {
		for o, networks := range r.placed {
			for network := range networks {
				if !yield(regulationKey(o, network)) {
					return
				}
			}
		}
		for at := range r.policies {
			for _, d := range directions() {
				if !yield(denyKey(at.network, at.namespace, d)) {
					return
				}
			}
		}
		for at, sets := range r.setsAt {
			for name := range sets {
				if !yield(setKey(at.network, name)) {
					return
				}
			}
		}
	}
}

// setRegulation sets a regulation; nil is one that is gone. It returns false when
// that changes nothing.
func (in *inputs) setRegulation(o object, r *regulation) bool {
	old := in.regulations.all[o]
	if old == r || old != nil && r != nil && old.same(r) {
		return false
	}
	if in.regulations.all[o] = r; r == nil {
		delete(in.regulations.all, o)
	}
	in.regulations.unplaced[o] = true
	return true
}

// concerns reports whether a regulation is for us to speak about: whether it is on
// a network of ours, or, where it can't be read, names one. What is for other
// networks is for others to judge, as OVN-Kubernetes.
func (in *inputs) concerns(o object, r *regulation) bool {
	switch {
	case r == nil:
		return false
	case len(in.regulations.placed[o]) > 0:
		return true
	case r.policy != nil:
		// A NAD that does not exist may well be a mistake.
		return len(r.policy.NADs) == 0 || slices.ContainsFunc(r.policy.NADs, func(nad string) bool { return in.nads[nad] == nil || in.nads[nad].ours })
	}
	selectors, _, _ := unstructured.NestedSlice(r.source.Object, "spec", "networkSelectors")
	return r.err != nil && len(selectors) > 0 && len(in.rulings.networks) > 0
}

// place brings regulations to the networks that they are for.
func (in *inputs) place() {
	for o := range in.regulations.unplaced {
		delete(in.regulations.unplaced, o)
		r := in.regulations.all[o]
		in.regulations.looked = append(in.regulations.looked, o)
		networks := in.networksOf(o, r)
		for network, old := range in.regulations.placed[o] {
			if !networks[network] {
				in.exchange(o, network, old, placement{})
			}
		}
		for network := range networks {
			if old := in.regulations.placed[o][network]; old.regulation != r {
				in.exchange(o, network, old, placement{r, r.compile(in.compiler(network))})
			}
		}
	}
	in.touchConcerned()
}

// manyConcerns are more than it pays to look for the pods of each: at a start all
// are looked at anyway.
const manyConcerns = 20

// touchConcerned marks the ports of the pods that something has come for, or gone.
func (in *inputs) touchConcerned() {
	concerned := in.regulations.concerned
	in.regulations.concerned = nil
	if len(concerned) > manyConcerns {
		for pod := range in.byPod {
			in.touch(in.byPod.of(pod))
		}
		return
	}
	for _, c := range concerned {
		in.touchSelected(c.pods, c.network)
	}
}

// networksOf are the networks that a regulation is for.
func (in *inputs) networksOf(o object, r *regulation) map[string]bool {
	networks := map[string]bool{}
	switch {
	case r == nil:
	case r.policy != nil:
		for _, nad := range r.policy.NADs {
			in.addNetworksOf(o, nad, networks)
		}
	case r.qos != nil:
		for name, n := range in.nads {
			if ruling := in.rulings.nads[name]; ruling.conf != nil && r.qos.Selects(n.source, in.labelsOf(n.source.GetNamespace())) {
				networks[ruling.network] = true
			}
		}
	}
	return networks
}

// addNetworksOf adds the network of a NAD that a policy is for. The ports of one
// that is gone, or refused, are left as they are, and so must be what is denied
// to them.
func (in *inputs) addNetworksOf(o object, nad string, networks map[string]bool) {
	if ruling := in.rulings.nads[nad]; ruling.conf != nil {
		networks[ruling.network] = true
		return
	}
	for network := range in.heldOn.of(nad) {
		networks[network] = true
	}
	for network := range in.heldByNet {
		if in.rows[regulationKey(o, network)].present {
			networks[network] = true
		}
	}
}

// exchange replaces a regulation on a network. Sets that both use stay.
func (in *inputs) exchange(o object, network string, old, now placement) {
	k := regulationKey(o, network)
	in.dirty[k] = true
	on := in.regulations.placed
	if now.regulation != nil {
		put(on, o, network, now)
	} else {
		drop(on, o, network)
	}
	at := locality{network, o.namespace}
	if now.policy() != nil {
		put(in.regulations.policies, at, o, now)
	} else {
		drop(in.regulations.policies, at, o)
	}
	for _, p := range []*policy.Policy{old.policy(), now.policy()} {
		if p == nil {
			continue
		}
		for _, d := range directions() {
			in.dirty[denyKey(network, o.namespace, d)] = true
		}
		in.regulations.concerned = append(in.regulations.concerned, concern{network, p.Pods})
	}
	for _, s := range now.compiled.Sets {
		in.use(k, s)
	}
	for _, s := range old.compiled.Sets {
		if !uses(now.compiled, s) {
			in.disuse(k, s)
		}
	}
}

// put and drop are for maps of maps.
func put[A, B comparable, V any](m map[A]map[B]V, a A, b B, v V) {
	if m[a] == nil {
		m[a] = map[B]V{}
	}
	m[a][b] = v
}

func drop[A, B comparable, V any](m map[A]map[B]V, a A, b B) {
	if delete(m[a], b); len(m[a]) == 0 {
		delete(m, a)
	}
}

// touchSelected marks the ports on a network of the pods that are selected.
func (in *inputs) touchSelected(s *policy.Selector, network string) {
	touch := func(name string) {
		p := in.pods[name]
		if p == nil || !s.Matches(p.namespace, in.labelsOf(p.namespace), p.labels) {
			return
		}
		for k := range in.byPod.of(name) {
			if in.networkOf(k) == network {
				in.dirty[k] = true
			}
		}
	}
	if s.Namespace() == "" {
		for name := range in.pods {
			touch(name)
		}
		return
	}
	for name := range in.podsByNamespace.of(s.Namespace()) {
		touch(name)
	}
}
