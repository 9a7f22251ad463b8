// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import corev1 "k8s.io/api/core/v1"

// vmLabels mark the pods in which a virtual machine runs; an empty value
// stands for any.
var vmLabels = []struct{ key, value string }{
	{"kubevirt.io", "virt-launcher"},
	{"vm.kubevirt.io/name", ""},
}

// IsVM reports whether a virtual machine runs in the pod. Its guest then is the
// DHCP client, not the pod.
func IsVM(pod *corev1.Pod) bool {
	for _, l := range vmLabels {
		if value, ok := pod.Labels[l.key]; ok && (l.value == "" || l.value == value) {
			return true
		}
	}
	return false
}
