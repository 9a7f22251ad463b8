// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// matchServing is what only a DHCP server sends to clients. Open vSwitch shows the
// ports of a datagram that is whole, so a part of one is taken to be a server's
// where it goes to all.
const matchServing = "((" + matchDHCPServer + ") || (ip4.dst == 255.255.255.255 && ip.is_frag))"

// DHCPServerGuard keeps everybody on a switch from being a DHCP server, except
// those on the physical network, behind the localnet port. That is two ACLs: OVN
// can't match a port that is not another one.
func (n Network) DHCPServerGuard(switchName, localnetPort string) []nbdb.ACL {
	physical := n.guard(switchName, "podPorts", "dhcpServerPhysical", and(fmt.Sprintf("inport == %q", localnetPort), matchServing))
	physical.Priority, physical.Action = priorityGuard+1, actionAllow
	return []nbdb.ACL{physical, n.guard(switchName, "podPorts", "dhcpServerGuard", matchServing)}
}

// OpenPorts is the port group of the ports that no address is pinned to.
func (n Network) OpenPorts() nbdb.PortGroup {
	return n.portGroup(ownerCluster, id{idName, "openPorts"})
}

// PinnedAddresses is the address set of what open ports must not speak for.
func (n Network) PinnedAddresses() nbdb.AddressSet {
	return n.addressSet(ownerCluster, id{idName, "pinnedAddresses"})
}

// OpenPortGuard keeps the ports that no address is pinned to from speaking for
// others: a port group for them, its ACL, and an address set, for what is not
// theirs: the addresses of the network's gateways and DHCP servers, and those
// that are pinned to other ports. It can't stop what OVN allows before any ACL:
// IPv6 neighbor discovery, router advertisements included, and MLD.
func (n Network) OpenPortGuard() nbdb.Rows {
	group, taken := n.OpenPorts(), n.PinnedAddresses()
	match := fmt.Sprintf("(arp.spa == {$%s} || ip4.src == {$%s} || ip6)", taken.Name, taken.Name)
	return nbdb.Rows{
		PortGroups:  []nbdb.PortGroup{group},
		AddressSets: []nbdb.AddressSet{taken},
		ACLs:        []nbdb.ACL{n.guard(group.Name, group.ExternalIDs[idName], "openPortGuard", and(Egress.of(group.Name), match))},
	}
}

// guard is an ACL, on a group or a switch, that no policy's can get before. name
// is whom it is about.
func (n Network) guard(on, name, kind, match string) nbdb.ACL {
	ids := n.externalIDs(ownerCluster, id{idName, name}, id{idDirection, string(Egress)}, id{idType, kind})
	return acl(on, Egress, priorityGuard, match, actionDrop, ids)
}
