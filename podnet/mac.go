// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"crypto/sha256"
	"fmt"
	"net"
)

// DeriveMAC is the MAC address of an attachment that asks for none: a locally
// administered unicast address whose other 46 bits are a hash of the cluster's
// identity and of the attachment's own. A pod that is created again under its
// name is the same DHCP client, and two clusters on one VLAN have different
// ones. cluster is the UID of the namespace kube-system, or what stands for it
// without Kubernetes.
func DeriveMAC(cluster, namespace, pod, nadKey string) net.HardwareAddr {
	h := sha256.New()
	for _, part := range []string{cluster, namespace, pod, nadKey} {
		// The length keeps ("a", "bc") and ("ab", "c") apart.
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	mac := net.HardwareAddr(h.Sum(nil)[:6])
	mac[0] = mac[0]&^0x03 | 0x02
	return mac
}

// DeriveVMMAC is DeriveMAC for a virtual machine: its name counts, and not that of
// the pod it runs in, so that it keeps the address from pod to pod.
func DeriveVMMAC(cluster, namespace, vm, nadKey string) net.HardwareAddr {
	return DeriveMAC(cluster, namespace, "vm/"+vm, nadKey) // no pod's name has a slash
}

// ParseMAC parses the MAC address of a network interface: 48 bits, unicast and
// not zero.
func ParseMAC(s string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("MAC address %q: must be 6 bytes in hexadecimal, as 02:00:00:00:00:01", s)
	}
	if mac[0]&0x01 != 0 {
		return nil, fmt.Errorf("MAC address %q: is a multicast address", s)
	}
	if mac.String() == "00:00:00:00:00:00" {
		return nil, fmt.Errorf("MAC address %q: is zero", s)
	}
	return mac, nil
}
