// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
)

// TestCRDs has the golden files' objects go through a Kubernetes API with our
// CRDs: what a schema does not know it would drop, and a policy could allow more
// than is meant.
func TestCRDs(t *testing.T) {
	c := kube.New(t, kube.Options{})
	if err := c.InstallCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	namespace := object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: ns}}")
	if _, err := c.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := map[string]bool{"qos-broken": true}
	for name, u := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			u.SetName(name)
			want, told := compile(u)
			resource := resourceOf(u)
			_, err := c.Dynamic.Resource(resource).Namespace("ns").Create(t.Context(), u, metav1.CreateOptions{FieldValidation: "Strict"})
			if (err != nil) != refused[name] {
				t.Errorf("the API says %v", err)
			}
			if err != nil {
				return
			}
			if resource.Version == "v1beta1" {
				resource.Version = "v1beta2"
			}
			got, err := c.Dynamic.Resource(resource).Namespace("ns").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			compiled, said := compile(got)
			if d := cmp.Diff(told+want.rows().String(), said+compiled.rows().String()); d != "" {
				t.Errorf("by way of the API (-want +got):\n%s", d)
			}
		})
	}
}

func resourceOf(u *unstructured.Unstructured) schema.GroupVersionResource {
	gv := u.GroupVersionKind().GroupVersion()
	if u.GetKind() == "NetworkQoS" {
		return gv.WithResource("networkqoses")
	}
	return gv.WithResource("multi-networkpolicies")
}
