// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// DHCPServerGuard keeps everybody on a switch from being a DHCP server, except
// those on the physical network, behind the localnet port.
func (n Network) DHCPServerGuard(switchName, localnetPort string) nbdb.ACL {
	match := and(fmt.Sprintf("inport != %q", localnetPort), matchDHCPServer)
	return n.guard(switchName, "podPorts", "dhcpServerGuard", match)
}

// OpenPortGuard keeps the ports that no address is pinned to from speaking for
// others: a port group for them, its ACL, and an address set, for what is not
// theirs: the addresses of the network's gateways and DHCP servers, and those
// that are pinned to other ports.
func (n Network) OpenPortGuard() nbdb.Rows {
	group := n.portGroup(ownerCluster, id{idName, "openPorts"})
	taken := n.addressSet(ownerCluster, id{idName, "pinnedAddresses"})
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
