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

// DenyGroup is the port group of all pods of a namespace that some policy isolates
// in a direction. All policies of that namespace share it.
func (n Network) DenyGroup(namespace string, d Direction) nbdb.PortGroup {
	return n.portGroup(ownerNamespace, id{idName, namespace}, id{idDirection, string(d)})
}

// DefaultDeny is the DenyGroup and its ACLs.
func (n Network) DefaultDeny(namespace string, d Direction) nbdb.Rows {
	group := n.DenyGroup(namespace, d)
	of := d.of(group.Name)
	entry := func(kind string, priority int, match, action string) nbdb.ACL {
		ids := n.externalIDs(ownerNamespace, id{idName, namespace}, id{idDirection, string(d)}, id{idType, kind})
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
