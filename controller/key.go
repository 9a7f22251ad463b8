// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller/policy"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// Groups of rows.
const (
	// groupNetwork is what a network is made of, and all that belongs to it as a
	// whole.
	groupNetwork = "network"
	// groupPort is the port of one attachment of a pod.
	groupPort = "port"
	// groupPolicy is a policy on a network: the port group of its pods, and ACLs.
	groupPolicy = "policy"
	// groupDeny is the port group of a namespace's pods on a network that policies
	// isolate in one direction, and the ACLs that do it.
	groupDeny = "deny"
	// groupSet is an address set of a network.
	groupSet = "set"
	// groupQoS is a QoS on a network.
	groupQoS = "qos"
)

// key names a group of rows.
type key struct {
	group   string
	network string // of all but ports

	nadKey, pod string // of a port
	// namespace is that of a port's pod, a policy, a QoS, or the pods of groupDeny.
	namespace string
	// name is that of a policy, a QoS, or a set's row; for groupDeny the direction.
	name string
}

func networkKey(name string) key { return key{group: groupNetwork, network: name} }

func portKey(nadKey, namespace, pod string) key {
	return key{group: groupPort, nadKey: nadKey, namespace: namespace, pod: pod}
}

func denyKey(network, namespace string, d policy.Direction) key {
	return key{group: groupDeny, network: network, namespace: namespace, name: string(d)}
}

func setKey(network, row string) key { return key{group: groupSet, network: network, name: row} }

// regulationKey is the group of a policy or QoS on a network.
func regulationKey(o object, network string) key {
	group := groupPolicy
	if o.kind == kindQoS {
		group = groupQoS
	}
	return key{group: group, network: network, namespace: o.namespace, name: o.name}
}

// regulation is the policy or QoS.
func (k key) regulation() object {
	kind := kindPolicy
	if k.group == groupQoS {
		kind = kindQoS
	}
	return object{kind, k.namespace, k.name}
}

func (k key) isPort() bool { return k.group == groupPort }

func (k key) nad() string { return podnet.NADName(k.nadKey) }

func (k key) podName() string { return k.namespace + "/" + k.pod }

// compare orders ports by pod.
func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(k.podName(), other.podName()), strings.Compare(k.nadKey, other.nadKey))
}

// String is the owner of the group's rows.
func (k key) String() string {
	owner := k.group + "/" + k.network
	switch k.group {
	case groupPort:
		return groupPort + "/" + k.nadKey + "/" + k.podName()
	case groupSet:
		return owner + "/" + k.name
	case groupPolicy, groupDeny, groupQoS:
		return owner + "/" + k.namespace + "/" + k.name
	}
	return owner
}

// parseKey reads what String writes. Rows with another owner are not of a group
// that this version knows.
func parseKey(owner string) (key, bool) {
	group, rest, _ := strings.Cut(owner, "/")
	parts := strings.Split(rest, "/")
	n := len(parts)
	switch {
	case group == groupNetwork && rest != "":
		return networkKey(rest), true
	case group == groupPort && n > 2 && validNADKey(strings.Join(parts[:n-2], "/")):
		return portKey(strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1]), true
	case group == groupSet && n > 1 && parts[0] != "":
		return setKey(strings.Join(parts[:n-1], "/"), parts[n-1]), true
	case (group == groupPolicy || group == groupDeny || group == groupQoS) && n > 2 && parts[0] != "":
		return key{group: group, network: strings.Join(parts[:n-2], "/"), namespace: parts[n-2], name: parts[n-1]}, true
	}
	return key{}, false
}

// validNADKey reports whether s is namespace/name or namespace/name/n, n ≥ 1.
func validNADKey(s string) bool {
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return false
	}
	if len(parts) == 2 {
		return true
	}
	n, err := strconv.Atoi(parts[2])
	return err == nil && n > 0 && strconv.Itoa(n) == parts[2]
}

// object names an object of the source.
type object struct{ kind, namespace, name string }

func podObject(name string) object { return named(kindPod, name) }
func nadObject(name string) object { return named(kindNAD, name) }

// named is an object by its "namespace/name".
func named(kind, name string) object {
	namespace, name, _ := strings.Cut(name, "/")
	return object{kind, namespace, name}
}

func (o object) String() string {
	if o.namespace == "" {
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}
