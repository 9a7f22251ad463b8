// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package kube

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// A cluster needs no CRD of policies: they are followed as soon as it has one, of
// whatever version, and each gets a condition, written once.
func TestOptionalKinds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster := kube.New(t, kube.Options{})
	config, err := cluster.Kubeconfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client, err := New(Config{Kubeconfig: config, Component: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	installCRD(t, cluster, "k8s.cni.cncf.io_network-attachment-definitions.yaml")
	source := client.NewSource("")
	synced, done := make(chan struct{}), make(chan error, 1)
	changes := make(chan string, 100)
	go func() {
		done <- source.Run(ctx, func(kind, namespace, name string) { changes <- kind + " " + namespace + "/" + name }, func() { close(synced) })
	}()
	defer func() { cancel(); <-done }()
	wait := func(what string, holds func() bool) {
		t.Helper()
		for !holds() {
			select {
			case <-changes:
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, ctx.Err())
			}
		}
	}
	select {
	case <-synced:
	case <-ctx.Done():
		t.Fatal("a source without CRDs has not begun")
	}
	wait("namespaces", func() bool { return source.Object("Namespace", "", "default") != nil })

	for version, file := range map[string]string{"v1beta1": "k8s.cni.cncf.io_multi-networkpolicies.yaml", "v1alpha1": "k8s.ovn.org_networkqoses.yaml"} {
		installCRD(t, cluster, file, version)
	}
	policies := schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1beta1", Resource: "multi-networkpolicies"}
	qos := schema.GroupVersionResource{Group: "k8s.ovn.org", Version: "v1alpha1", Resource: "networkqoses"}
	create := func(r schema.GroupVersionResource, kind, spec string) {
		t.Helper()
		u := &unstructured.Unstructured{}
		text := fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {namespace: default, name: one}, spec: %s}", r.GroupVersion(), kind, spec)
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Dynamic.Resource(r).Namespace("default").Create(ctx, u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(policies, kindPolicy, "{podSelector: {}}")
	create(qos, kindQoS, "{networkSelectors: [{networkSelectionType: NetworkAttachmentDefinitions, networkAttachmentDefinitionSelector: {namespaceSelector: {}, networkSelector: {}}}], priority: 1, egress: [{dscp: 1}]}")
	for _, kind := range []string{kindPolicy, kindQoS} {
		wait(kind, func() bool { return source.Object(kind, "default", "one") != nil })
		if err := source.Report(ctx, kind, "default", "one", map[string]string{"Wrong": "all"}); err != nil {
			t.Fatal(err)
		}
		wait("condition of a "+kind, func() bool {
			_, changed := statusOf(source.Object(kind, "default", "one"), "", map[string]string{"Wrong": "all"}, time.Now())
			return !changed
		})
	}
}

// TestListPods lists pods by namespace and labels, once the API server has them in its
// cache.
func TestListPods(t *testing.T) {
	cluster := kube.New(t, kube.Options{})
	config, err := cluster.Kubeconfig("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client, err := New(Config{Kubeconfig: config, Component: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{"web": nil, "vm1": {"vm": "1", "app": "x"}, "vm2": {"vm": "2", "app": "x"}} {
		_, err := cluster.Client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(namespace string, having map[string]string) int {
		t.Helper()
		pods, err := client.ListPods(t.Context(), namespace, having)
		if err != nil {
			t.Fatal(err)
		}
		return len(pods)
	}
	deadline := time.After(10 * time.Second)
	for tick := time.NewTicker(50 * time.Millisecond); count("", nil) != 3; {
		select {
		case <-deadline:
			t.Fatal("the API server's cache has not all pods")
		case <-tick.C:
		}
	}
	for _, test := range []struct {
		namespace string
		having    map[string]string
		want      int
	}{
		{"default", nil, 3}, {"kube-system", nil, 0}, {"default", map[string]string{"app": "x"}, 2},
		{"", map[string]string{"app": "x", "vm": "1"}, 1}, {"default", map[string]string{"app": "y"}, 0},
	} {
		if got := count(test.namespace, test.having); got != test.want {
			t.Errorf("namespace %q, labels %v: %d pods, want %d", test.namespace, test.having, got, test.want)
		}
	}
}

// installCRD creates a CRD that serves these versions only; without versions,
// all of the file.
func installCRD(t *testing.T, c *kube.ControlPlane, file string, versions ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../deploy/crds", file))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	all, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if version := v.(map[string]any); len(versions) > 0 {
			version["served"] = version["name"] == versions[0]
		}
	}
	if err := unstructured.SetNestedSlice(u.Object, all, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := c.Dynamic.Resource(crds).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(u.Object, "metadata", "name")
	for {
		got, err := c.Dynamic.Resource(crds).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
				return
			}
		}
	}
}
