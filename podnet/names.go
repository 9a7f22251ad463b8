// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package podnet is what an attachment of a pod to a localnet network is, as
// both the node daemon and the controller write it down: the network's
// configuration in the NAD, the pod's selection of networks, the pod-networks
// annotation, and the names that follow from them. Everything here is pure and
// safe for concurrent use.
package podnet

import "strings"

// Topology and roles of the networks that this product serves.
const (
	TopologyLocalnet = "localnet"
	RoleSecondary    = "secondary"
	IPAMTypeDHCP     = "dhcp"
)

// Prefix is OVN-Kubernetes' prefix of the names that belong to a network or a
// NAD: '-' and '/' become '.', and '_' ends it. Different names can have one
// prefix; whoever creates rows must refuse such a pair.
func Prefix(name string) string {
	return strings.NewReplacer("-", ".", "/", ".").Replace(name) + "_"
}

// SwitchName is the name of a localnet network's Logical_Switch.
func SwitchName(network string) string {
	return Prefix(network) + "ovn_localnet_switch"
}

// LocalnetPortName is the name of the Logical_Switch_Port of type localnet that
// joins a network's switch to the physical network.
func LocalnetPortName(network string) string {
	return Prefix(network) + "ovn_localnet_port"
}

// LearnerName is the name of the Logical_Router through which OVN learns who has
// which address on a network.
func LearnerName(network string) string {
	return Prefix(network) + "ovn_localnet_learner"
}

// LearnerPortName is the name of the learner's Logical_Router_Port.
func LearnerPortName(network string) string {
	return LearnerName(network) + "_port"
}

// LearnerSwitchPortName is the name of the Logical_Switch_Port of type router that
// joins the learner to its network's switch.
func LearnerSwitchPortName(network string) string {
	return LearnerName(network) + "_switch_port"
}

// PortName is the name of the Logical_Switch_Port of a pod's attachment, and
// the iface-id of its OVS interface. nadKey is "namespace/name", or
// "namespace/name/n" for the n-th further attachment of that NAD.
func PortName(nadKey, namespace, pod string) string {
	return Prefix(nadKey) + namespace + "_" + pod
}

// NADName is the "namespace/name" of the NAD that a NAD key stands for.
func NADName(nadKey string) string {
	parts := strings.SplitN(nadKey, "/", 3)
	if len(parts) < 3 {
		return nadKey
	}
	return parts[0] + "/" + parts[1]
}
