// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// namespace is where the product is installed.
const namespace = "ovn-dhcp-ipam"

// cluster has the objects in the Kubernetes API. The daemons have the rights
// that the product's own manifest gives them.
type cluster struct {
	*kube.ControlPlane
}

// install prepares the API, and the nodes' way to it.
func (c cluster) install(ctx context.Context, l *lab.Lab, rbac string) error {
	for _, n := range l.Nodes {
		if err := c.Connect(ctx, n); err != nil {
			return err
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		if _, err := c.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for _, name := range []string{namespace, "default"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if err := c.InstallCRDs(ctx); err != nil {
		return err
	}
	return c.apply(ctx, rbac)
}

// apply applies a manifest of RBAC objects.
func (c cluster) apply(ctx context.Context, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	resources := map[string]string{
		"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "RoleBinding": "rolebindings",
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var u unstructured.Unstructured
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r := c.Dynamic.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resources[u.GetKind()]})
		if _, err := r.Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), &u, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
			return fmt.Errorf("%s: %s: %w", path, u.GetName(), err)
		}
	}
}

func (c cluster) flags(account string) ([]string, error) {
	path, err := c.Kubeconfig("system:serviceaccount:" + namespace + ":" + account)
	return []string{"--kubeconfig", path}, err
}

func (c cluster) putPod(pod *corev1.Pod) (*corev1.Pod, error) {
	pods := c.Client.CoreV1().Pods(pod.Namespace)
	fresh := pod.DeepCopy()
	fresh.UID = ""
	created, err := pods.Create(context.Background(), fresh, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return pods.Update(context.Background(), pod, metav1.UpdateOptions{})
	}
	return created, err
}

func (c cluster) getPod(namespace, name string) (*corev1.Pod, error) {
	return c.Client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
}

func (c cluster) putNetwork(namespace, name, config string) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1",
		"kind":       "NetworkAttachmentDefinition",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       map[string]any{"config": config},
	}}
	_, err := c.Dynamic.Resource(nads()).Namespace(namespace).Apply(context.Background(), name, u, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

func (c cluster) remove(kind, namespace, name string) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	if kind == "nad" {
		return c.Dynamic.Resource(nads()).Namespace(namespace).Delete(context.Background(), name, now)
	}
	return c.Client.CoreV1().Pods(namespace).Delete(context.Background(), name, now)
}

func nads() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
}
