// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"

// What every pod may do, whatever denies it the rest. A negated form of the
// first is refused by ovn-controller, which says so only in its log.
const (
	matchNeighbour  = "(arp || nd)"
	matchDHCPServer = "udp.src==67 && udp.dst==68" // RFC 2131, 4.1
	matchDHCPClient = "udp.src==68 && udp.dst==67"
)

// DefaultDeny is the port group of all pods of a namespace that some policy
// isolates in a direction, and its ACLs. All policies of that namespace share
// it.
func (n Network) DefaultDeny(namespace string, d Direction) nbdb.Rows {
	identity := []id{{idName, namespace}, {idDirection, string(d)}}
	group := n.portGroup(ownerNamespace, identity...)
	of := d.of(group.Name)
	entry := func(kind string, priority int, match, action string) nbdb.ACL {
		ids := n.externalIDs(ownerNamespace, append(identity, id{idType, kind})...)
		return policyACL(group.Name, d, priority, match, action, ids)
	}
	dhcp := matchDHCPServer
	if d == Egress {
		dhcp = matchDHCPClient
	}
	return nbdb.Rows{
		PortGroups: []nbdb.PortGroup{group},
		ACLs: []nbdb.ACL{
			entry("defaultDeny", priorityDeny, of, actionDrop),
			entry("arpAllow", priorityAllow, and(of, matchNeighbour), actionAllow),
			// Without any ACL that allows what is related, OVN tracks no connections on
			// a switch, and drops the replies to those that a pod has opened.
			entry("dhcpAllow", priorityAllow, and(of, dhcp), actionAllowRelated),
		},
	}
}
