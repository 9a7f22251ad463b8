// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy compiles MultiNetworkPolicy and NetworkQoS objects, and the
// guards of a DHCP network, into rows of OVN's northbound database. Everything
// here is pure, and what it returns is not changed once made.
//
// Who is a member is not known here: port groups have nil Ports, and address
// sets nil Addresses. A Selector says who belongs in.
//
// Names and external_ids are those that OVN-Kubernetes gives to the same rows.
package policy

import (
	"hash/fnv"
	"strconv"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// Network is what rows are compiled for. It has IPv4 only.
type Network struct {
	Name string
	// IDPrefix comes before "network" in the external_ids of the rows.
	IDPrefix string
}

// Keys of external_ids. Those of an identity come in the order in which their
// values are in nbdb.IDKey.
const (
	idController = "k8s.ovn.org/owner-controller"
	idOwnerType  = "k8s.ovn.org/owner-type"
	idName       = "k8s.ovn.org/name"
	idDirection  = "direction"
	idType       = "type"
	idGress      = "gress-index"
	idProtocol   = "port-policy-protocol"
	idBlock      = "ip-block-index"
	idFamily     = "ip-family"
	idRule       = "rule-index"
)

// Owner types.
const (
	ownerCluster   = "Cluster" // of the network as a whole
	ownerNamespace = "NetpolNamespace"
	ownerPolicy    = "NetworkPolicy"
	ownerSelector  = "PodSelector"
	ownerQoS       = "NetworkQoS"
)

const familyIPv4 = "v4"

// id is a key of external_ids and its value.
type id struct{ key, value string }

// externalIDs are those of a row with this identity.
func (n Network) externalIDs(ownerType string, identity ...id) map[string]string {
	owner := n.Name + "-network-controller"
	out := map[string]string{
		idController:           owner,
		idOwnerType:            ownerType,
		n.IDPrefix + "network": n.Name,
	}
	whole := owner + ":" + ownerType
	for _, i := range identity {
		out[i.key] = i.value
		whole += ":" + i.value
	}
	out[nbdb.IDKey] = whole
	return out
}

// rowName is the name of the port group or address set with these external_ids.
// Matches have names in them, which can't have all the characters of an id.
func rowName(externalIDs map[string]string) string {
	h := fnv.New64a()
	h.Write([]byte(externalIDs[nbdb.IDKey]))
	return "a" + strconv.FormatUint(h.Sum64(), 10)
}

func (n Network) portGroup(ownerType string, identity ...id) nbdb.PortGroup {
	ids := n.externalIDs(ownerType, identity...)
	return nbdb.PortGroup{Name: rowName(ids), ExternalIDs: ids}
}

func (n Network) addressSet(ownerType string, identity ...id) nbdb.AddressSet {
	ids := n.externalIDs(ownerType, append(identity, id{idFamily, familyIPv4})...)
	return nbdb.AddressSet{Name: rowName(ids), ExternalIDs: ids}
}
