// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// traffic is what a rule is about.
type traffic struct {
	// any is true for a rule that names no peer.
	any    bool
	peers  []*Selector
	blocks []netip.Prefix
	l4     []l4
}

func allTraffic() traffic {
	return traffic{any: true, l4: []l4{{protocol: anyProtocol}}}
}

// traffic reads the peers, in a field of this name, and the ports of a rule.
// namespace is that of the object.
func (r *reader) traffic(at *field.Path, v any, peers, namespace string) traffic {
	t := allTraffic()
	r.fields(at, v, []child{
		{peers, func(at *field.Path, v any) {
			r.list(at, v, func(at *field.Path, v any) {
				t.any = false
				r.peer(at, v, namespace, &t)
			})
		}},
		{"ports", func(at *field.Path, v any) {
			if ports := r.ports(at, v); len(ports) > 0 {
				t.l4 = ports
			}
		}},
	})
	slices.SortFunc(t.blocks, netip.Prefix.Compare)
	t.blocks = slices.Compact(t.blocks)
	return t
}

// peer reads a NetworkPolicyPeer.
func (r *reader) peer(at *field.Path, v any, namespace string, into *traffic) {
	var byPod, byNamespace, byAddress bool
	s := &Selector{pods: everything()}
	r.fields(at, v, []child{
		{"podSelector", func(at *field.Path, v any) {
			byPod, s.pods = true, r.labels(at, v)
		}},
		{"namespaceSelector", func(at *field.Path, v any) {
			selector := r.labels(at, v)
			byNamespace, s.namespaces = true, &selector
		}},
		{"ipBlock", func(at *field.Path, v any) {
			byAddress = true
			into.blocks = append(into.blocks, r.block(at, v)...)
		}},
	})
	switch {
	case byAddress && (byPod || byNamespace):
		r.note(at, v, "ipBlock can't be combined with podSelector or namespaceSelector")
	case byAddress:
	case !byPod && !byNamespace:
		r.note(at, v, "needs podSelector, namespaceSelector or ipBlock")
	default:
		if !byNamespace {
			s.namespace = namespace
		}
		into.peers = append(into.peers, s)
	}
}

// sets are the address sets of the peers, each once, in the order of their
// names.
func (t traffic) sets(n Network) (sets map[string]Set, references []string) {
	sets = map[string]Set{}
	for _, peer := range t.peers {
		set := n.set(peer)
		if _, ok := sets[set.Row.Name]; !ok {
			sets[set.Row.Name] = set
			references = append(references, "$"+set.Row.Name)
		}
	}
	slices.Sort(references)
	return sets, references
}

func texts(prefixes []netip.Prefix) []string {
	var out []string
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

// protocols matches the packets of one of the protocols, "" for any.
func (t traffic) protocols() string {
	var terms []string
	for _, l := range t.l4 {
		terms = append(terms, l.match)
	}
	if len(terms) == 1 {
		return terms[0]
	}
	return "((" + strings.Join(terms, ") || (") + "))"
}
