// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// PolicyFor is the annotation that says which networks a MultiNetworkPolicy is
// for: a comma list of NADs, "namespace/name" or "name" in its own namespace.
const PolicyFor = "k8s.v1.cni.cncf.io/policy-for"

// Policy is a MultiNetworkPolicy.
type Policy struct {
	// Namespace and Name are the object's.
	Namespace, Name string
	// NADs are those of its networks, "namespace/name", sorted. On such a
	// network it applies to all ports of the pods that it selects.
	NADs []string
	// Pods are those that it applies to.
	Pods *Selector

	rules map[Direction][]traffic // none of a direction that it isn't about
}

// Values of ip-block-index: what ACLs of selectors and of any address have, and
// those of all address blocks of a rule.
const (
	blockNone = "-1"
	blockAll  = "-2"
)

// ParsePolicy reads a MultiNetworkPolicy of k8s.cni.cncf.io, v1beta1 or v1beta2.
// Its error names what is wrong, field and value. The policy then is one that
// allows nothing: to the pods that it selects, in the directions that it is
// about; where that can't be read, to all pods of the namespace, and in both.
func ParsePolicy(u *unstructured.Unstructured) (*Policy, error) {
	r := &reader{}
	r.identity(u, "MultiNetworkPolicy", "k8s.cni.cncf.io/v1beta1", "k8s.cni.cncf.io/v1beta2")
	p := &Policy{
		Namespace: u.GetNamespace(),
		Name:      u.GetName(),
		NADs:      r.policyFor(u),
		rules:     map[Direction][]traffic{},
	}
	spec := r.policySpec(u.Object["spec"], p.Namespace)
	p.Pods = &Selector{namespace: p.Namespace, pods: spec.pods}
	for _, d := range spec.types {
		p.rules[d] = spec.rules[d]
		if r.failed() {
			p.rules[d] = nil
		}
	}
	return p, r.err()
}

// policyFor reads the annotation.
func (r *reader) policyFor(u *unstructured.Unstructured) []string {
	at := field.NewPath("metadata", "annotations").Key(PolicyFor)
	text := u.GetAnnotations()[PolicyFor]
	var out []string
	for nad := range strings.SplitSeq(text, ",") {
		nad = strings.TrimSpace(nad)
		namespace, name, ok := strings.Cut(nad, "/")
		switch {
		case nad == "":
		case !ok:
			out = append(out, u.GetNamespace()+"/"+nad)
		case namespace != "" && name != "" && !strings.Contains(name, "/"):
			out = append(out, nad)
		default:
			r.note(at, nad, "must be a NetworkAttachmentDefinition's name, or namespace/name")
		}
	}
	if len(out) == 0 {
		r.note(at, text, "must name the networks")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type policySpec struct {
	pods  labelSelector
	types []Direction
	rules map[Direction][]traffic
}

func (r *reader) policySpec(v any, namespace string) policySpec {
	out := policySpec{pods: everything(), rules: map[Direction][]traffic{}}
	implied := []Direction{Ingress} // when there are no policyTypes
	if _, ok := v.(map[string]any); v != nil && !ok {
		implied = directions[:]
	}
	r.fields(field.NewPath("spec"), v, []child{
		{"podSelector", func(at *field.Path, v any) {
			before := r.errors()
			if selector := r.labels(at, v); r.errors() == before {
				out.pods = selector
			}
		}},
		{"policyTypes", func(at *field.Path, v any) { out.types = r.policyTypes(at, v) }},
		{"ingress", func(at *field.Path, v any) {
			out.rules[Ingress] = r.rules(at, v, "from", namespace)
		}},
		{"egress", func(at *field.Path, v any) {
			out.rules[Egress] = r.rules(at, v, "to", namespace)
			if list, ok := v.([]any); !ok || len(list) > 0 {
				implied = directions[:]
			}
		}},
	})
	if len(out.types) == 0 {
		out.types = implied
	}
	return out
}

func (r *reader) rules(at *field.Path, v any, peers, namespace string) []traffic {
	var out []traffic
	r.list(at, v, func(at *field.Path, v any) {
		out = append(out, r.traffic(at, v, peers, namespace))
	})
	return out
}

// policyTypes reads the directions, both if one can't be read.
func (r *reader) policyTypes(at *field.Path, v any) []Direction {
	before := r.errors()
	var out []Direction
	r.list(at, v, func(at *field.Path, v any) {
		name := ""
		r.text(&name)(at, v)
		out = append(out, Direction(name))
		if !slices.Contains(directions[:], Direction(name)) {
			r.note(at, v, "must be Ingress or Egress")
		}
	})
	if r.errors() > before {
		return directions[:]
	}
	return out
}

// Isolates reports whether the policy denies its pods, in a direction, what no
// policy allows: they belong into the group of Network.DefaultDeny then.
func (p *Policy) Isolates(d Direction) bool {
	_, ok := p.rules[d]
	return ok
}

// Compiled are the rows of a policy or QoS on one network, and the address sets
// that their matches refer to, in the order of their names. Those are shared
// with others.
type Compiled struct {
	Rows nbdb.Rows
	Sets []Set
	// Source is the name of the set that a QoS has for itself: of the addresses
	// that traffic comes from. While that is empty the rows match nothing.
	Source string
}

// Compile returns the port group for the ports of the policy's pods, and the
// ACLs for what it allows. What it denies is up to Network.DefaultDeny.
func (p *Policy) Compile(n Network) Compiled {
	name := id{idName, p.Namespace + ":" + p.Name}
	group := n.portGroup(ownerPolicy, name)
	out := nbdb.Rows{PortGroups: []nbdb.PortGroup{group}}
	all := map[string]Set{}
	for _, d := range directions {
		for i, rule := range p.rules[d] {
			sets, references := rule.sets(n)
			maps.Copy(all, sets)
			for _, e := range rule.ends(d, references) {
				for _, l := range rule.l4 {
					ids := n.externalIDs(ownerPolicy, name, id{idDirection, string(d)}, id{idGress, strconv.Itoa(i)},
						id{idProtocol, l.protocol}, id{idBlock, e.block})
					match := and(e.match, l.match, d.of(group.Name))
					out.ACLs = append(out.ACLs, policyACL(group.Name, d, priorityAllow, match, actionAllowRelated, ids))
				}
			}
		}
	}
	return Compiled{Rows: out, Sets: sorted(all)}
}

// end is a match of the other end's address, and its value of ip-block-index.
type end struct{ block, match string }

// ends are the other ends of a rule's traffic: any, or the pods in address sets,
// and blocks of addresses. There are none if exceptions have left nothing.
func (t traffic) ends(d Direction, references []string) []end {
	if t.any {
		return []end{{blockNone, "ip4"}}
	}
	var out []end
	if len(references) > 0 {
		out = append(out, end{blockNone, among(d.peer(), references)})
	}
	if len(t.blocks) > 0 {
		out = append(out, end{blockAll, among(d.peer(), texts(t.blocks))})
	}
	return out
}

func sorted(sets map[string]Set) []Set {
	return slices.SortedFunc(maps.Values(sets), func(a, b Set) int { return strings.Compare(a.Row.Name, b.Row.Name) })
}
