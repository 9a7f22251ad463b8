// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnnotationPatch(t *testing.T) {
	const key = "k8s.ovn.org/pod-networks"
	for _, test := range []struct {
		name        string
		annotations map[string]string
		value       string
		want        string
	}{
		{"the first annotation", nil, "new",
			`[{"op":"test","path":"/metadata/uid","value":"u1"},{"op":"test","path":"/metadata/annotations","value":null},{"op":"add","path":"/metadata/annotations","value":{"k8s.ovn.org/pod-networks":"new"}}]`},
		{"beside another one", map[string]string{"a": "b"}, "new",
			`[{"op":"test","path":"/metadata/uid","value":"u1"},{"op":"test","path":"/metadata/annotations/k8s.ovn.org~1pod-networks","value":null},{"op":"add","path":"/metadata/annotations/k8s.ovn.org~1pod-networks","value":"new"}]`},
		{"replaced", map[string]string{key: "old"}, "new",
			`[{"op":"test","path":"/metadata/uid","value":"u1"},{"op":"test","path":"/metadata/annotations/k8s.ovn.org~1pod-networks","value":"old"},{"op":"replace","path":"/metadata/annotations/k8s.ovn.org~1pod-networks","value":"new"}]`},
		{"removed", map[string]string{key: "old"}, "",
			`[{"op":"test","path":"/metadata/uid","value":"u1"},{"op":"test","path":"/metadata/annotations/k8s.ovn.org~1pod-networks","value":"old"},{"op":"remove","path":"/metadata/annotations/k8s.ovn.org~1pod-networks","value":null}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1", Annotations: test.annotations}}
			got, err := json.Marshal(annotationPatch(pod, key, test.value))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
