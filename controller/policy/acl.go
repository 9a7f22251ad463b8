// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// Direction is that of the traffic, as the pod sees it.
type Direction string

// Both directions, in the words of policyTypes.
const (
	Ingress Direction = "Ingress"
	Egress  Direction = "Egress"
)

var directions = [...]Direction{Ingress, Egress}

// Priorities of ACLs.
const (
	priorityGuard = 2000
	priorityAllow = 1001
	priorityDeny  = 1000
)

// Actions of ACLs.
const (
	actionAllow        = "allow"
	actionAllowRelated = "allow-related"
	actionDrop         = "drop"
)

// maxACLName is the limit of ACL.name.
const maxACLName = 63

// of matches the packets of the ports of a group.
func (d Direction) of(group string) string {
	if d == Ingress {
		return "outport == @" + group
	}
	return "inport == @" + group
}

// peer is the field of a packet that has the other end's address.
func (d Direction) peer() string {
	if d == Ingress {
		return source
	}
	return destination
}

// Fields of packets, in matches.
const (
	source      = "ip4.src"
	destination = "ip4.dst"
)

// among matches the packets in which a field has one of these values.
func among(field string, values []string) string {
	return field + " == {" + strings.Join(values, ", ") + "}"
}

// and matches what all of the matches do; one that is empty matches all.
func and(matches ...string) string {
	return strings.Join(slices.DeleteFunc(matches, func(m string) bool { return m == "" }), " && ")
}

// acl is an ACL on the ports of a group, before load balancing.
func acl(group string, d Direction, priority int, match, action string, externalIDs map[string]string) nbdb.ACL {
	out := nbdb.ACL{
		On:          group,
		Direction:   "from-lport",
		Priority:    priority,
		Match:       match,
		Action:      action,
		ExternalIDs: externalIDs,
	}
	if d == Ingress {
		out.Direction = "to-lport"
	}
	return out
}

// policyACL is an ACL of a policy, which for egress has a stage of its own after
// load balancing, and a name for logs.
func policyACL(group string, d Direction, priority int, match, action string, externalIDs map[string]string) nbdb.ACL {
	out := acl(group, d, priority, match, action, externalIDs)
	if d == Egress {
		out.Options = map[string]string{"apply-after-lb": "true"}
	}
	out.Name = "NP:" + externalIDs[idName] + ":" + string(d)
	if index, ok := externalIDs[idGress]; ok {
		out.Name += ":" + index
	}
	out.Name = out.Name[:min(len(out.Name), maxACLName)]
	return out
}
