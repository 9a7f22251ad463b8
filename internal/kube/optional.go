// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds that a cluster may do without.
const (
	kindPolicy = "MultiNetworkPolicy"
	kindQoS    = "NetworkQoS"
)

// optional are the kinds that a cluster may do without, and where they are, in
// the order of preference.
func optional() map[string][]schema.GroupVersionResource {
	policies := schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1beta2", Resource: "multi-networkpolicies"}
	return map[string][]schema.GroupVersionResource{
		kindPolicy: {policies, policies.GroupResource().WithVersion("v1beta1")},
		kindQoS:    {{Group: "k8s.ovn.org", Version: "v1alpha1", Resource: "networkqoses"}},
	}
}

// discoveryInterval is between looks at what the API serves.
const discoveryInterval = 10 * time.Second

// followOptional follows the objects of a kind while the API serves one of some
// resources. While it serves none there are no such objects.
func (c *Client) followOptional(ctx context.Context, kind string, resources []schema.GroupVersionResource, s *store) error {
	var f following
	stop := func() {}
	defer func() { stop() }()
	for {
		wait := discoveryInterval
		served, err := c.firstServed(ctx, resources)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				c.log.Warn("what the Kubernetes API serves is not known", "kind", kind, "err", err)
			}
			wait = retryInterval
		case f.see(served):
			stop()
			stop = func() {}
			if served.Empty() {
				c.log.Info("the Kubernetes API has no objects of a kind", "kind", kind)
				if err := s.Replace(nil, ""); err != nil {
					return err
				}
				break
			}
			stop = run(ctx, func(ctx context.Context) {
				reflectorOf(kind, &unstructured.Unstructured{}, c.dynamic.Resource(served), s).RunWithContext(ctx)
			})
		case f.missed:
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// following is what is followed of a kind.
type following struct {
	resource schema.GroupVersionResource // the zero value for nothing
	known    bool                        // what the API serves
	missed   bool                        // the resource, at the last look
}

// see notes what the API serves, and reports whether that is to be followed from now
// on. What is followed must be missed twice: of several API servers one may know
// it later than others, and without their policies pods are denied nothing.
func (f *following) see(served schema.GroupVersionResource) (change bool) {
	if served.Empty() && !f.resource.Empty() && !f.missed {
		f.missed = true
		return false
	}
	change = !f.known || served != f.resource
	*f = following{resource: served, known: true}
	return change
}

// run starts f; stop ends it, and returns when it has ended.
func run(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	return func() { cancel(); wg.Wait() }
}

// firstServed is the first of some resources that the API serves, the zero value
// for none.
func (c *Client) firstServed(ctx context.Context, resources []schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	for _, r := range resources {
		data, err := c.typed.Discovery().RESTClient().Get().AbsPath("/apis", r.Group, r.Version).
			SetHeader("Accept", "application/json").DoRaw(ctx)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return schema.GroupVersionResource{}, fmt.Errorf("discover %s: %w", r, err)
		}
		var list metav1.APIResourceList
		if err := json.Unmarshal(data, &list); err != nil {
			return schema.GroupVersionResource{}, fmt.Errorf("discover %s: %w", r, err)
		}
		if slices.ContainsFunc(list.APIResources, func(found metav1.APIResource) bool { return found.Name == r.Resource }) {
			return r, nil
		}
	}
	return schema.GroupVersionResource{}, nil
}
