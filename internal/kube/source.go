// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

const kindNAD = "NetworkAttachmentDefinition"

// nadResource is where NADs are.
var nadResource = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}

// Source follows pods, NADs and nodes, as the controller needs it.
// It is safe for concurrent use, and run once. The objects that it returns are
// shared and must not be changed.
type Source struct {
	client    *Client
	informers map[string]cache.SharedIndexInformer // by kind
	recorder  record.EventRecorder
	events    record.EventBroadcaster

	mu       sync.Mutex
	reported map[string]map[string]string // messages by reason, by object
}

// NewSource makes a Source. It asks for nothing before Run.
func (c *Client) NewSource() (*Source, error) {
	typed := informers.NewSharedInformerFactoryWithOptions(c.typed, 0, informers.WithTransform(trim))
	nads := dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0)
	s := &Source{
		client: c,
		informers: map[string]cache.SharedIndexInformer{
			"Pod":   typed.Core().V1().Pods().Informer(),
			"Node":  typed.Core().V1().Nodes().Informer(),
			kindNAD: nads.ForResource(nadResource).Informer(),
		},
		events:   record.NewBroadcaster(),
		reported: map[string]map[string]string{},
	}
	s.recorder = s.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: controllerComponent})
	for kind, informer := range s.informers {
		if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
			c.log.Warn("objects can't be read or watched", "kind", kind, "err", err)
		}); err != nil {
			return nil, fmt.Errorf("informer of kind %s: %w", kind, err)
		}
	}
	return s, nil
}

// trim drops what nobody reads of an object before it is kept: in a large
// cluster that is most of the memory.
func trim(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Pod:
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase}
	case *corev1.Node:
		o.Spec, o.Status = corev1.NodeSpec{}, corev1.NodeStatus{}
	}
	return object, nil
}

// Run follows the objects until ctx ends: it calls changed for each object that
// exists, then synced once, then changed for each object that comes, changes or
// goes.
func (s *Source) Run(ctx context.Context, changed func(kind, namespace, name string), synced func()) error {
	sink := s.events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.client.typed.CoreV1().Events("")})
	defer sink.Stop()
	defer s.events.Shutdown()
	var handlers []cache.InformerSynced
	for kind, informer := range s.informers {
		tell := func(object any) { tell(kind, object, changed) }
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    tell,
			UpdateFunc: func(_, now any) { tell(now) },
			DeleteFunc: tell,
		})
		if err != nil {
			return fmt.Errorf("follow objects of kind %s: %w", kind, err)
		}
		handlers = append(handlers, handler.HasSynced)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, informer := range s.informers {
		g.Go(func() error {
			informer.RunWithContext(ctx)
			return ctx.Err()
		})
	}
	g.Go(func() error {
		if cache.WaitForCacheSync(ctx.Done(), handlers...) {
			synced()
		}
		return nil
	})
	return g.Wait()
}

func tell(kind string, object any, changed func(kind, namespace, name string)) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if m, err := meta.Accessor(object); err == nil {
		changed(kind, m.GetNamespace(), m.GetName())
	}
}

func (s *Source) get(kind, namespace, name string) any {
	informer := s.informers[kind]
	if informer == nil {
		return nil
	}
	object, ok, err := informer.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if !ok || err != nil {
		return nil
	}
	return object
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

// Report makes an Event of each problem of an object that is new or has another
// message than the last time. Events that are no longer true expire.
func (s *Source) Report(_ context.Context, kind, namespace, name string, problems map[string]string) error {
	ref := &corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}
	object, err := meta.Accessor(s.get(kind, namespace, name))
	if err != nil {
		return nil // nobody looks for the events of an object that is gone
	}
	ref.UID = types.UID(object.GetUID())
	ref.APIVersion = "v1"
	if kind == kindNAD {
		ref.APIVersion = nadResource.GroupVersion().String()
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
			s.recorder.Event(ref, corev1.EventTypeWarning, reason, message)
		}
	}
	return nil
}
