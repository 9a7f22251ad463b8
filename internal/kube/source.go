// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

const kindNAD = "NetworkAttachmentDefinition"

// nadResource is where NADs are.
var nadResource = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}

// Source follows what the controller needs: pods, NADs, nodes and namespaces, and
// MultiNetworkPolicies and NetworkQoS where the API has them.
// It is safe for concurrent use, and run once. The objects that it returns are
// shared and must not be changed.
type Source struct {
	client     *Client
	followed   map[string]followed // by kind
	recorder   record.EventRecorder
	events     record.EventBroadcaster
	conditions *conditions

	mu       sync.Mutex
	reported map[string]map[string]string // messages by reason, by object
}

// followed are the objects of one kind, and what keeps them in step.
type followed struct {
	*store
	// run returns when ctx ends.
	run func(ctx context.Context) error
}

// NewSource makes a Source for the controller of a zone, "" without zones. It
// asks for nothing before Run.
func (c *Client) NewSource(zone string) *Source {
	namespaces := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	s := &Source{
		client: c,
		followed: map[string]followed{
			"Pod":       follow("Pod", &corev1.Pod{}, c.typed.CoreV1().Pods("")),
			"Node":      follow("Node", &corev1.Node{}, c.typed.CoreV1().Nodes()),
			kindNAD:     follow(kindNAD, &unstructured.Unstructured{}, c.dynamic.Resource(nadResource)),
			"Namespace": follow("Namespace", &unstructured.Unstructured{}, namespaces),
		},
		events:   record.NewBroadcaster(),
		reported: map[string]map[string]string{},
	}
	for kind, resources := range optional() {
		objects := &store{}
		s.followed[kind] = followed{objects, func(ctx context.Context) error { return c.followOptional(ctx, kind, resources, objects) }}
	}
	s.conditions = newConditions(s, zone)
	s.recorder = s.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: controllerComponent})
	return s
}

// resource is what can be followed.
type resource[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

func follow[L runtime.Object](kind string, example runtime.Object, r resource[L]) followed {
	s := &store{}
	return followed{s, func(ctx context.Context) error {
		reflectorOf(kind, example, r, s).RunWithContext(ctx)
		return ctx.Err()
	}}
}

func reflectorOf[L runtime.Object](kind string, example runtime.Object, r resource[L], s *store) *cache.Reflector {
	from := &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, opts) },
		WatchFuncWithContext: r.Watch,
	}
	return cache.NewReflectorWithOptions(from, example, s, cache.ReflectorOptions{Name: "ovn-dhcp-ipam", TypeDescription: kind})
}

// trim drops what nobody reads of an object before it is kept: in a large
// cluster that is most of the memory.
func trim(object any) any {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Pod:
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase}
	case *unstructured.Unstructured:
		if o.GetKind() == "Namespace" {
			delete(o.Object, "spec")
			delete(o.Object, "status")
		}
	case *corev1.Node:
		o.Spec, o.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	}
	return object
}

// Run follows the objects until ctx ends: it calls changed for each object that
// exists, then synced once, then changed for each object that comes, changes or
// goes.
func (s *Source) Run(ctx context.Context, changed func(kind, namespace, name string), synced func()) error {
	sink := s.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.client.typed.CoreV1().Events("")})
	defer sink.Stop()
	defer s.events.Shutdown()
	var unfilled atomic.Int32
	unfilled.Store(int32(len(s.followed)))
	filled := func() {
		if unfilled.Add(-1) == 0 {
			synced()
		}
	}
	// Errors of a reflector, which goes on, are logged there.
	g, ctx := errgroup.WithContext(klog.NewContext(ctx, logr.FromSlogHandler(s.client.log.Handler())))
	for kind, f := range s.followed {
		f.changed = func(namespace, name string) { changed(kind, namespace, name) }
		f.filled = filled
		g.Go(func() error { return f.run(ctx) })
	}
	g.Go(func() error { return s.conditions.run(ctx) })
	return g.Wait()
}

func (s *Source) get(kind, namespace, name string) any {
	f, ok := s.followed[kind]
	if !ok {
		return nil
	}
	return f.object(namespace, name)
}

// Pod returns a pod, nil when there is none. Of its spec and status it has the
// node's name and the phase.
func (s *Source) Pod(namespace, name string) *corev1.Pod {
	pod, _ := s.get("Pod", namespace, name).(*corev1.Pod)
	return pod
}

// Node returns a node's metadata, nil when there is none.
func (s *Source) Node(name string) *corev1.Node {
	node, _ := s.get("Node", "", name).(*corev1.Node)
	return node
}

// Object returns an object of a kind that has no method of its own, nil when
// there is none.
func (s *Source) Object(kind, namespace, name string) *unstructured.Unstructured {
	object, _ := s.get(kind, namespace, name).(*unstructured.Unstructured)
	return object
}

// maxEventMessage is the API's limit.
const maxEventMessage = 1024

// Report makes an Event of each problem of an object that is new or has another
// message than the last time. Events that are no longer true expire. Policies and
// QoS get a condition as well.
func (s *Source) Report(_ context.Context, kind, namespace, name string, problems map[string]string) error {
	ref := &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}
	object, err := meta.Accessor(s.get(kind, namespace, name))
	if err != nil {
		return nil // nobody looks for the events of an object that is gone
	}
	ref.UID = types.UID(object.GetUID())
	ref.APIVersion = "v1"
	if u := s.Object(kind, namespace, name); u != nil {
		ref.APIVersion = u.GetAPIVersion()
	}
	if optional()[kind] != nil {
		s.conditions.set(kind, cache.NewObjectName(namespace, name), problems)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := kind + "/" + namespace + "/" + name
	old := s.reported[at]
	if s.reported[at] = problems; len(problems) == 0 {
		delete(s.reported, at)
	}
	for reason, message := range problems {
		if old[reason] != message {
			s.recorder.Event(ref, corev1.EventTypeWarning, reason, cut(message, maxEventMessage))
		}
	}
	return nil
}
