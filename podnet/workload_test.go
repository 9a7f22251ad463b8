// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsVM(t *testing.T) {
	for _, test := range []struct {
		labels map[string]string
		want   bool
	}{
		{nil, false},
		{map[string]string{"app": "web"}, false},
		{map[string]string{"kubevirt.io": "virt-handler"}, false},
		{map[string]string{"kubevirt.io": "virt-launcher"}, true},
		{map[string]string{"vm.kubevirt.io/name": "vm1"}, true},
	} {
		if got := IsVM(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}); got != test.want {
			t.Errorf("%v: got %v", test.labels, got)
		}
	}
}
