// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// What OVN-Kubernetes writes into status.status of a NetworkQoS.
const (
	qosApplied    = "NetworkQoS Destinations applied"
	qosNotApplied = "NetworkQoS Destinations not correctly applied"
)

// maxConditionMessage is the API's limit.
const maxConditionMessage = 32768

// conditions writes, into the status of policies and QoS, whether they are
// applied in a zone.
type conditions struct {
	source *Source
	zone   string // "" without zones

	mu    sync.Mutex
	queue map[string]map[cache.ObjectName]map[string]string // problems, by kind and object
	wake  chan struct{}                                     // holds a token when there is something
}

func newConditions(s *Source, zone string) *conditions {
	return &conditions{source: s, zone: zone, queue: map[string]map[cache.ObjectName]map[string]string{}, wake: make(chan struct{}, 1)}
}

// set has the condition of an object written.
func (c *conditions) set(kind string, name cache.ObjectName, problems map[string]string) {
	c.mu.Lock()
	if c.queue[kind] == nil {
		c.queue[kind] = map[cache.ObjectName]map[string]string{}
	}
	c.queue[kind][name] = problems
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// restore puts back what could not be written, unless there is something newer.
func (c *conditions) restore(kind string, name cache.ObjectName, problems map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, newer := c.queue[kind][name]; !newer {
		c.queue[kind][name] = problems
	}
}

// run writes conditions until ctx ends.
func (c *conditions) run(ctx context.Context) error {
	for {
		var again <-chan time.Time
		for kind := range optional() {
			c.mu.Lock()
			queue := c.queue[kind]
			c.queue[kind] = map[cache.ObjectName]map[string]string{}
			c.mu.Unlock()
			for name, problems := range queue {
				if !c.write(ctx, kind, name, problems) {
					c.restore(kind, name, problems)
					again = time.After(discoveryInterval)
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		case <-again:
		}
	}
}

// write writes the condition of one object. It returns false when that is to be
// tried again; a server that refuses it, since the objects have no status there,
// is not asked twice.
func (c *conditions) write(ctx context.Context, kind string, name cache.ObjectName, problems map[string]string) bool {
	object := c.source.Object(kind, name.Namespace, name.Name)
	if object == nil {
		return true
	}
	status, changed := statusOf(object, c.zone, problems, time.Now())
	if !changed {
		return true
	}
	gv, err := schema.ParseGroupVersion(object.GetAPIVersion())
	if err != nil {
		return true
	}
	patch := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object.GetAPIVersion(),
		"kind":       kind,
		"metadata":   map[string]any{"namespace": name.Namespace, "name": name.Name, "uid": string(object.GetUID())},
		"status":     status,
	}}
	resource := c.source.client.dynamic.Resource(gv.WithResource(optional()[kind][0].Resource)).Namespace(name.Namespace)
	_, err = resource.ApplyStatus(ctx, name.Name, patch, metav1.ApplyOptions{FieldManager: "ovn-dhcp-ipam-" + zoneName(c.zone), Force: true})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another one by now
		return true
	case ctx.Err() != nil:
		return false
	}
	c.source.client.log.Warn("condition can't be written", "kind", kind, "object", name.String(), "err", err)
	passing := apierrors.ReasonForError(err) == metav1.StatusReasonUnknown || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
	return !passing
}

// zoneName is the zone as conditions name it.
func zoneName(zone string) string { return cmp.Or(zone, "global") }

// statusOf is the part of an object's status that says whether it is applied in
// a zone; changed is false when the object has that status.
func statusOf(object *unstructured.Unstructured, zone string, problems map[string]string, now time.Time) (status map[string]any, changed bool) {
	condition := ready(zone, object.GetGeneration(), problems)
	var before struct {
		Status     string             `json:"status"`
		Conditions []metav1.Condition `json:"conditions"`
	}
	if old, ok := object.Object["status"].(map[string]any); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(old, &before); err != nil {
			before.Conditions = nil // whatever it is, it is replaced
		}
	}
	condition.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	changed = true
	for _, old := range before.Conditions {
		if old.Type != condition.Type {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		old.LastTransitionTime = condition.LastTransitionTime
		changed = old != condition
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&condition)
	if err != nil {
		return nil, false // not of what a condition consists of
	}
	status = map[string]any{"conditions": []any{fields}}
	if object.GetKind() == kindQoS && zone == "" {
		whole := qosApplied
		if len(problems) > 0 {
			whole = qosNotApplied
		}
		status["status"], changed = whole, changed || before.Status != whole
	}
	return status, changed
}

// ready is the condition of a policy or QoS in a zone, without the time of its
// transition.
func ready(zone string, generation int64, problems map[string]string) metav1.Condition {
	out := metav1.Condition{
		Type:               "Ready-In-Zone-" + zoneName(zone),
		Status:             metav1.ConditionTrue,
		ObservedGeneration: generation,
		Reason:             "Success",
		Message:            "The rules are in OVN's northbound database.",
	}
	if len(problems) > 0 {
		var messages []string
		for _, reason := range slices.Sorted(maps.Keys(problems)) {
			messages = append(messages, reason+": "+problems[reason])
		}
		out.Status, out.Reason = metav1.ConditionFalse, "Failed"
		out.Message = cut(strings.Join(messages, "; "), maxConditionMessage)
	}
	return out
}

// cut is a text of at most so many bytes.
func cut(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(mark)], "") + mark
}
