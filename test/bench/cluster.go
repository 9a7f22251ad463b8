// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// The network that all pods are on.
const (
	namespace  = metav1.NamespaceDefault
	network    = "lan"
	nadKey     = namespace + "/" + network
	switchName = network + "_ovn_localnet_switch"
	// localnetPort is the port that a switch has from the start.
	localnetPort = network + "_ovn_localnet_port"

	annotation = "k8s.ovn.org/pod-networks"
	// note is an annotation that nobody has an interest in.
	note = "bench"
)

// portName is the logical port of a pod.
func portName(pod string) string { return namespace + "." + network + "_" + namespace + "_" + pod }

// cluster is the Kubernetes API with a watch of its own on the pods.
type cluster struct {
	plane      *kube.ControlPlane
	kubeconfig string // with all rights
	client     kubernetes.Interface
	api        typedcorev1.PodInterface // pods of the namespace
	// seen has the pods by name, as a watch tells. Those that go are not noted.
	seen *board[*corev1.Pod]
}

// newCluster starts a control plane with a node, and a network on a physical
// network. stop ends it.
func newCluster(ctx context.Context, physicalNetwork string) (_ *cluster, stop func() error, err error) {
	plane, err := kube.Start(ctx, kube.Options{})
	if err != nil {
		return nil, nil, err
	}
	c := &cluster{plane: plane, seen: newBoard[*corev1.Pod]()}
	if err := c.setUp(ctx, physicalNetwork); err != nil {
		return nil, nil, errors.Join(err, plane.Stop())
	}
	unwatch := c.watch(ctx)
	return c, func() error {
		unwatch()
		return plane.Stop()
	}, nil
}

func (c *cluster) setUp(ctx context.Context, physicalNetwork string) (err error) {
	if err := c.plane.InstallCRDs(ctx); err != nil {
		return err
	}
	if c.kubeconfig, err = c.plane.Kubeconfig("bench", "system:masters"); err != nil {
		return err
	}
	// As fast as it can be, so that we see things no later than the daemons.
	config := rest.CopyConfig(c.plane.Admin)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	config.DisableCompression = true
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.api = c.client.CoreV1().Pods(namespace)
	if _, err := c.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.createNAD(ctx, physicalNetwork)
}

func (c *cluster) createNAD(ctx context.Context, physicalNetwork string) error {
	conf := site.Network{Namespace: namespace, Name: network, Config: map[string]any{
		"name": network, "topology": "localnet", "role": "secondary", "physicalNetworkName": physicalNetwork,
		"ipam": map[string]any{"type": "dhcp"},
	}}.Conf()
	resource := schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
	_, err := c.plane.Dynamic.Resource(resource).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": map[string]any{"namespace": namespace, "name": network},
		"spec":     map[string]any{"config": string(conf)},
	}}, metav1.CreateOptions{})
	return err
}

// watch follows the pods until ctx ends or stop is called. Under load the server
// ends some watches; a reflector begins another.
func (c *cluster) watch(ctx context.Context) (stop func()) {
	// Of all namespaces, as the controller's: the API server tells narrower watches first.
	from := cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
	reflector := cache.NewReflector(from, &corev1.Pod{}, sightings{c.seen}, 0)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { reflector.RunWithContext(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// sightings puts pods on a board at once when a watch tells of them, with no
// informer's queue in between.
type sightings struct{ *board[*corev1.Pod] }

func (s sightings) Add(object any) error { return s.Update(object) }
func (s sightings) Delete(any) error     { return nil }
func (s sightings) Resync() error        { return nil }

func (s sightings) Update(object any) error {
	pod := object.(*corev1.Pod)
	if pod.Namespace != namespace {
		return nil
	}
	s.put(pod.Name, pod)
	return nil
}

func (s sightings) Replace(objects []any, _ string) error {
	for _, object := range objects {
		s.Update(object)
	}
	return nil
}

// createPod creates a pod, with the annotation that says what its network gave
// it, "" for none.
func (c *cluster) createPod(ctx context.Context, name, networks string) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{group: groupOf(name)},
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": network}},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	if networks != "" {
		pod.Annotations[annotation] = networks
	}
	_, err := c.api.Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// annotate sets the annotation of a pod.
func (c *cluster) annotate(ctx context.Context, name, networks string) error {
	return c.patch(ctx, name, annotation, networks)
}

func (c *cluster) patch(ctx context.Context, name, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	_, err = c.api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// annotated reports whether a pod is seen with this annotation.
func annotated(networks string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod != nil && pod.Annotations[annotation] == networks }
}

func (c *cluster) deletePod(ctx context.Context, name string) error {
	return c.api.Delete(ctx, name, metav1.DeleteOptions{})
}
