// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube runs a Kubernetes control plane of real parts for tests: etcd
// and kube-apiserver. Users with rights of their own, by RBAC, have client
// certificates.
//
// There is no controller manager, scheduler or kubelet. So a pod is created
// with its spec.nodeName, nothing but its creator gives it a status, and it is
// deleted with a grace period of zero; a namespace that is deleted stays in
// phase Terminating; an object does not go with its owner.
//
// A control plane has an IP address of its own on the loopback device, so that
// several can run at once. The nodes of a lab reach it after Connect. Multus
// calls the CNI plugins on such a node as Multus does, with what the API says
// of pods and networks.
//
// The programs are not part of this module: test/tools/build.sh builds them.
package kube
