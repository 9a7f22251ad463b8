// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of nodes that OVN-Kubernetes writes.
const (
	nodeChassisAnnotation = "k8s.ovn.org/node-chassis-id"
	nodeZoneAnnotation    = "k8s.ovn.org/zone-name"
)

// defaultZone is the zone of nodes that don't name one.
const defaultZone = "global"

// node is what matters of a node.
type node struct {
	chassis string // in OVN
	zone    string
}

func parseNode(n *corev1.Node) *node {
	return &node{
		chassis: cmp.Or(n.Annotations[nodeChassisAnnotation], n.Name),
		zone:    cmp.Or(n.Annotations[nodeZoneAnnotation], defaultZone),
	}
}

// place is where a pod is, as seen from our zone.
type place int

const (
	unknown   place = iota // there is no such node
	here                   // in our zone, or there are no zones
	elsewhere              // in another zone
)

// placeOf is where a pod is; nil is a pod that is gone.
func (in *inputs) placeOf(p *pod) place {
	if p == nil {
		return unknown
	}
	n := in.nodes[p.node]
	switch {
	case in.zone == "":
		return here
	case n == nil:
		return unknown
	case n.zone == in.zone:
		return here
	}
	return elsewhere
}

// chassis is the OVN chassis of a node.
func (in *inputs) chassis(name string) string {
	if n := in.nodes[name]; n != nil {
		return n.chassis
	}
	return name
}
