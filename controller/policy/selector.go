// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// Selector selects pods: by their labels, and by their namespace's name or
// labels.
type Selector struct {
	namespace  string         // if namespaces is nil
	namespaces *labelSelector // nil for one namespace only
	pods       labelSelector
}

// Key is the selector in text. Selectors with the same key select the same.
func (s *Selector) Key() string {
	if s.namespaces == nil {
		return s.namespace + "_" + s.pods.text
	}
	return s.namespaces.text + "_" + s.pods.text
}

// Namespace is the only one in which pods can be selected, "" when that depends
// on the namespaces' labels.
func (s *Selector) Namespace() string { return s.namespace }

// Matches reports whether a pod is selected.
func (s *Selector) Matches(namespace string, namespaceLabels, podLabels map[string]string) bool {
	if s.namespaces == nil {
		return namespace == s.namespace && s.pods.matches(podLabels)
	}
	return s.namespaces.matches(namespaceLabels) && s.pods.matches(podLabels)
}

// Set is an address set that matches use: the addresses, on the network, of the
// pods that are selected.
type Set struct {
	Selector *Selector
	Row      nbdb.AddressSet
}

// set is the address set of a selector, the same for all that use it.
func (n Network) set(s *Selector) Set {
	return Set{Selector: s, Row: n.addressSet(ownerSelector, id{idName, s.Key()})}
}

// labelSelector is a metav1.LabelSelector. It has a text, which is the same for
// selectors that differ in order only; OVN-Kubernetes writes it so.
type labelSelector struct {
	text     string
	selector labels.Selector
}

func (l labelSelector) matches(set map[string]string) bool {
	return l.selector.Matches(labels.Set(set))
}

// everything is the empty selector.
func everything() labelSelector {
	return labelSelector{text: "LS{}", selector: labels.Everything()}
}

var operators = map[string]selection.Operator{
	"In":           selection.In,
	"NotIn":        selection.NotIn,
	"Exists":       selection.Exists,
	"DoesNotExist": selection.DoesNotExist,
}

// labels reads a metav1.LabelSelector.
func (r *reader) labels(at *field.Path, v any) labelSelector {
	var equal map[string]string
	var requirements []string
	out := everything()
	require := func(at *field.Path, key string, operator selection.Operator, values []string) {
		requirement, err := labels.NewRequirement(key, operator, values)
		if err != nil {
			r.note(at, fmt.Sprint(key, " ", operator, " ", values), err.Error())
			return
		}
		out.selector = out.selector.Add(*requirement)
	}
	r.fields(at, v, []child{
		{"matchLabels", func(at *field.Path, v any) {
			equal = r.stringMap(at, v)
			for _, key := range slices.Sorted(maps.Keys(equal)) {
				require(at, key, selection.Equals, []string{equal[key]})
			}
		}},
		{"matchExpressions", func(at *field.Path, v any) {
			r.list(at, v, func(at *field.Path, v any) {
				key, operator, values := r.expression(at, v)
				slices.Sort(values)
				values = slices.Compact(values)
				requirements = append(requirements, fmt.Sprintf("LSR{Key:%s,Operator:%s,Values:%v,}", key, operator, values))
				op, ok := operators[operator]
				if !ok {
					r.note(at.Child("operator"), operator, "must be In, NotIn, Exists or DoesNotExist")
					return
				}
				require(at, key, op, values)
			})
		}},
	})
	out.text = selectorText(equal, requirements)
	return out
}

func selectorText(equal map[string]string, requirements []string) string {
	var b strings.Builder
	b.WriteString("LS{")
	if len(equal) > 0 {
		b.WriteString("ML:{")
		for _, key := range slices.Sorted(maps.Keys(equal)) {
			fmt.Fprintf(&b, "%s: %s,", key, equal[key])
		}
		b.WriteString("},")
	}
	if len(requirements) > 0 {
		slices.Sort(requirements)
		fmt.Fprintf(&b, "ME:{%s},", strings.Join(slices.Compact(requirements), ","))
	}
	b.WriteString("}")
	return b.String()
}

func (r *reader) stringMap(at *field.Path, v any) map[string]string {
	object, ok := v.(map[string]any)
	if !ok {
		r.note(at, v, "must be an object")
		return nil
	}
	if !r.count(at, len(object)) {
		return nil
	}
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := ""
		r.text(&value)(at.Key(key), object[key])
		out[key] = value
	}
	return out
}

// expression reads a metav1.LabelSelectorRequirement.
func (r *reader) expression(at *field.Path, v any) (key, operator string, values []string) {
	r.fields(at, v, []child{
		{"key", r.text(&key)},
		{"operator", r.text(&operator)},
		{"values", func(at *field.Path, v any) {
			r.list(at, v, func(at *field.Path, v any) {
				value := ""
				r.text(&value)(at, v)
				values = append(values, value)
			})
		}},
	})
	return key, operator, values
}
