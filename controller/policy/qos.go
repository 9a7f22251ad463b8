// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// QoS is a NetworkQoS.
type QoS struct {
	// Namespace and Name are the object's.
	Namespace, Name string
	// Pods are those whose traffic it is about.
	Pods *Selector

	networks []networkSelector
	priority int
	rules    []qosRule
}

// networkSelector selects NADs.
type networkSelector struct {
	// rendered is true where only the NADs of ClusterUserDefinedNetworks count.
	rendered         bool
	namespaces, nads labelSelector
}

type qosRule struct {
	traffic
	dscp, rate, burst int // 0 is none for the latter two
}

// Limits of NetworkQoS, and the priorities of its rows.
const (
	maxQoSPriority  = 100
	maxQoSRules     = 20
	maxDSCP         = 63
	maxBandwidth    = 1<<32 - 1
	qosPriorityBase = 10000
	qosPriorityStep = 10
)

// ParseQoS reads a NetworkQoS of k8s.ovn.org/v1alpha1. Its error names what is
// wrong, field and value; there is no QoS then.
func ParseQoS(u *unstructured.Unstructured) (*QoS, error) {
	r := &reader{}
	r.identity(u, "NetworkQoS", "k8s.ovn.org/v1alpha1")
	q := &QoS{Namespace: u.GetNamespace(), Name: u.GetName()}
	pods := everything()
	spec := field.NewPath("spec")
	r.fields(spec, u.Object["spec"], []child{
		{"podSelector", func(at *field.Path, v any) { pods = r.labels(at, v) }},
		{"priority", r.number(&q.priority, 0, maxQoSPriority)},
		{"networkSelectors", func(at *field.Path, v any) {
			r.list(at, v, func(at *field.Path, v any) { q.networks = append(q.networks, r.network(at, v)) })
		}},
		{"egress", func(at *field.Path, v any) {
			r.list(at, v, func(at *field.Path, v any) { q.rules = append(q.rules, r.qosRule(at, v, q.Namespace)) })
		}},
	})
	if len(q.networks) == 0 {
		r.note(spec.Child("networkSelectors"), "", "must select networks: the default network is not served")
	}
	if len(q.rules) > maxQoSRules {
		r.note(spec.Child("egress"), len(q.rules), "rules are too many, the limit is "+strconv.Itoa(maxQoSRules))
	}
	q.Pods = &Selector{namespace: q.Namespace, pods: pods}
	if err := r.err(); err != nil {
		return nil, err
	}
	return q, nil
}

// network reads a NetworkSelector.
func (r *reader) network(at *field.Path, v any) networkSelector {
	const byNAD, byCUDN = "NetworkAttachmentDefinitions", "ClusterUserDefinedNetworks"
	kind, found := "", ""
	out := networkSelector{namespaces: everything(), nads: everything()}
	of := func(selects string) func(*field.Path, any) {
		return func(at *field.Path, v any) {
			found = selects
			known := []child{
				{"networkSelector", func(at *field.Path, v any) { out.nads = r.labels(at, v) }},
			}
			if selects == byNAD {
				known = append(known, child{"namespaceSelector", func(at *field.Path, v any) { out.namespaces = r.labels(at, v) }})
			}
			r.fields(at, v, known)
		}
	}
	other := func(*field.Path, any) {} // networkSelectionType says what is wrong
	r.fields(at, v, []child{
		{"networkSelectionType", r.text(&kind)},
		{"networkAttachmentDefinitionSelector", of(byNAD)},
		{"clusterUserDefinedNetworkSelector", of(byCUDN)},
		{"primaryUserDefinedNetworkSelector", other},
		{"secondaryUserDefinedNetworkSelector", other},
	})
	switch {
	case kind != byNAD && kind != byCUDN:
		r.note(at.Child("networkSelectionType"), kind, "must be "+byNAD+" or "+byCUDN+": other networks are not served")
	case found != kind:
		r.note(at, v, "must have the selector of its networkSelectionType, and no other")
	}
	out.rendered = kind == byCUDN
	return out
}

func (r *reader) qosRule(at *field.Path, v any, namespace string) qosRule {
	out := qosRule{dscp: -1, traffic: allTraffic()}
	r.fields(at, v, []child{
		{"dscp", r.number(&out.dscp, 0, maxDSCP)},
		{"classifier", func(at *field.Path, v any) { out.traffic = r.traffic(at, v, "to", namespace) }},
		{"bandwidth", func(at *field.Path, v any) {
			r.fields(at, v, []child{
				{"rate", r.number(&out.rate, 1, maxBandwidth)},
				{"burst", r.number(&out.burst, 1, maxBandwidth)},
			})
		}},
	})
	if out.dscp < 0 {
		r.note(at, v, "needs dscp")
	}
	if out.burst > 0 && out.rate == 0 {
		r.note(at.Child("bandwidth", "burst"), out.burst, "needs rate")
	}
	return out
}

// Selects reports whether a NAD is one of the networks. Those that were made of
// a ClusterUserDefinedNetwork are known by their controller.
func (q *QoS) Selects(nad metav1.Object, namespaceLabels map[string]string) bool {
	controller := metav1.GetControllerOfNoCopy(nad)
	rendered := controller != nil && controller.Kind == "ClusterUserDefinedNetwork" && strings.HasPrefix(controller.APIVersion, "k8s.ovn.org/")
	for _, n := range q.networks {
		if (rendered || !n.rendered) && n.nads.matches(nad.GetLabels()) && n.namespaces.matches(namespaceLabels) {
			return true
		}
	}
	return false
}

// Compile returns a row for each rule, and the set that is its own: of the
// addresses that traffic comes from.
func (q *QoS) Compile(n Network) Compiled {
	name := id{idName, q.Namespace + ":" + q.Name}
	from := Set{
		Selector: q.Pods,
		Row:      n.addressSet(ownerQoS, name, id{idRule, "src"}, id{idBlock, "0"}),
	}
	all := map[string]Set{from.Row.Name: from}
	var rows []nbdb.QoS
	for i, rule := range q.rules {
		sets, references := rule.sets(n)
		maps.Copy(all, sets)
		to := ""
		if !rule.any {
			ends := append(references, texts(rule.blocks)...)
			if len(ends) == 0 {
				continue // exceptions have left nothing
			}
			to = among(destination, ends)
		}
		row := nbdb.QoS{
			Switch:      podnet.SwitchName(n.Name),
			Direction:   "to-lport",
			Priority:    qosPriorityBase + qosPriorityStep*q.priority + i,
			Match:       and(among(source, []string{"$" + from.Row.Name}), to, rule.protocols()),
			Action:      map[string]int{"dscp": rule.dscp},
			ExternalIDs: n.externalIDs(ownerQoS, name, id{idRule, strconv.Itoa(i)}),
		}
		if rule.rate > 0 {
			row.Bandwidth = map[string]int{"rate": rule.rate}
		}
		if rule.burst > 0 {
			row.Bandwidth["burst"] = rule.burst
		}
		rows = append(rows, row)
	}
	return Compiled{nbdb.Rows{QoS: rows}, sorted(all), from.Row.Name}
}
