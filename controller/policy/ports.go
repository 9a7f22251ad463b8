// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// l4 is a protocol, and what ports of it, as a match.
type l4 struct {
	// protocol is in OVN's words, or "None" for any.
	protocol string
	match    string // "" where protocol is None
}

// anyProtocol is how OVN-Kubernetes calls the absence of one.
const anyProtocol = "None"

var protocols = map[string]string{"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}

// ports reads a list of NetworkPolicyPorts. Those of one protocol become one
// match.
func (r *reader) ports(at *field.Path, v any) []l4 {
	byProtocol := map[string][]portRange{}
	r.list(at, v, func(at *field.Path, v any) {
		protocol, ports := r.port(at, v)
		byProtocol[protocol] = append(byProtocol[protocol], ports)
	})
	var out []l4
	for protocol, ports := range byProtocol {
		out = append(out, l4{protocol, portMatch(protocol, ports)})
	}
	slices.SortFunc(out, func(a, b l4) int { return strings.Compare(a.protocol, b.protocol) })
	return out
}

// portRange are the ports from first to last; none if first is 0, which stands
// for all.
type portRange struct{ first, last int }

func (r *reader) port(at *field.Path, v any) (protocol string, ports portRange) {
	name, named := "TCP", ""
	r.fields(at, v, []child{
		{"protocol", r.text(&name)},
		{"port", func(at *field.Path, v any) {
			if s, ok := v.(string); ok {
				named = s
				r.note(at, s, "must be a number: pods' names for ports can't be used here")
				return
			}
			r.number(&ports.first, 1, 65535)(at, v)
		}},
		{"endPort", r.number(&ports.last, 1, 65535)},
	})
	protocol, ok := protocols[name]
	if !ok {
		r.note(at.Child("protocol"), name, "must be TCP, UDP or SCTP")
	}
	if ports.last != 0 && ports.last < ports.first {
		r.note(at.Child("endPort"), ports.last, fmt.Sprintf("must not be less than port, %d", ports.first))
	}
	if ports.last != 0 && ports.first == 0 && named == "" {
		r.note(at.Child("endPort"), ports.last, "needs port")
	}
	ports.last = max(ports.first, ports.last)
	return protocol, ports
}

// portMatch matches what goes to one of these ports.
func portMatch(protocol string, ports []portRange) string {
	var single, terms []string
	slices.SortFunc(ports, func(a, b portRange) int {
		if a.first != b.first {
			return a.first - b.first
		}
		return a.last - b.last
	})
	for _, p := range slices.Compact(ports) {
		switch {
		case p.first == 0:
			return protocol
		case p.first == p.last:
			single = append(single, fmt.Sprint(p.first))
		default:
			terms = append(terms, fmt.Sprintf("%d<=%s.dst<=%d", p.first, protocol, p.last))
		}
	}
	switch len(single) {
	case 0:
	case 1:
		terms = append([]string{protocol + ".dst==" + single[0]}, terms...)
	default:
		terms = append([]string{protocol + ".dst=={" + strings.Join(single, ",") + "}"}, terms...)
	}
	if len(terms) == 1 {
		return and(protocol, terms[0])
	}
	return and(protocol, "("+strings.Join(terms, " || ")+")")
}
