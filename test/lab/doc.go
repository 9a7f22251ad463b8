// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab runs a small OVN site out of real parts: the northbound and
// southbound databases, ovn-northd, nodes with Open vSwitch and ovn-controller,
// a physical network and a DHCP server on it. Tests and the demo share it. It
// runs the system's OVN or, side by side with it, another one.
//
// A program first calls Main or Isolate, which moves it into pid, mount and
// network namespaces of its own: whatever happens to it, the kernel ends all
// processes and frees all mounts and devices, and the host's network is never
// touched. Then it starts as many labs as it likes with New or Start.
//
// Inside, a node has its own network and mount namespace. It shares the file
// system with the others but for /run/ovn-kubernetes and /run/cni, which are
// its own, so that every node's daemon can use the default socket paths, and
// /run/openvswitch, where its OVS is found.
package lab
