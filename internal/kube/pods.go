// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GetPod returns a pod as the API has it now. apierrors.IsNotFound holds for
// the error of one that does not exist.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.typed.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// patchOp is an operation of a JSON Patch (RFC 6902).
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// annotationPatch sets one annotation, or with "" removes it, if the pod's UID
// and the annotation are still what they are in pod. Other changes of the pod
// don't matter. Testing for null is testing that there is no such field.
func annotationPatch(pod *corev1.Pod, annotation, value string) []patchOp {
	const annotations = "/metadata/annotations"
	path := annotations + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(annotation)
	ops := []patchOp{{"test", "/metadata/uid", pod.UID}}
	old, set := pod.Annotations[annotation]
	switch {
	case len(pod.Annotations) == 0:
		return append(ops, patchOp{"test", annotations, nil}, patchOp{"add", annotations, map[string]string{annotation: value}})
	case !set:
		return append(ops, patchOp{"test", path, nil}, patchOp{"add", path, value})
	case value == "":
		return append(ops, patchOp{"test", path, old}, patchOp{"remove", path, nil})
	}
	return append(ops, patchOp{"test", path, old}, patchOp{"replace", path, value})
}

// AnnotatePod replaces the value of one annotation of the pod with this UID by
// what change makes of the present one, "" standing for an annotation that is
// not set. It is a JSON Patch that the server refuses when the pod's UID or the
// annotation has changed meanwhile; then it starts over, until ctx ends. When
// the pod is gone, or has another UID, the error is that of a pod that does not
// exist and nothing is written.
func (c *Client) AnnotatePod(ctx context.Context, namespace, name string, uid types.UID, annotation string, change func(old string) (string, error)) error {
	var refused error // of a patch that was made of the value refusedOf
	var refusedOf string
	for {
		pod, err := c.GetPod(ctx, namespace, name)
		if err != nil {
			return err
		}
		if pod.UID != uid {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
		}
		old := pod.Annotations[annotation]
		if refused != nil && old == refusedOf {
			return refused // not because of a change
		}
		value, err := change(old)
		if err != nil || value == old {
			return err
		}
		patch, err := json.Marshal(annotationPatch(pod, annotation, value))
		if err != nil {
			return fmt.Errorf("annotate pod %s/%s: %w", namespace, name, err)
		}
		// The status is what a node may write of a pod.
		_, err = c.typed.CoreV1().Pods(namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
		// A failed test makes a patch invalid; so does what would not be
		// otherwise the next time, as a policy of the cluster.
		switch {
		case apierrors.IsInvalid(err):
			refused, refusedOf = err, old
		case !apierrors.IsConflict(err):
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(conflictPause + rand.N(conflictPause)):
		}
	}
}

// conflictPause is between tries to write what somebody else writes too.
const conflictPause = 5 * time.Millisecond

// PodProblems returns what has been reported on a pod since then, each as
// "reason: message".
func (c *Client) PodProblems(ctx context.Context, namespace, name string, since time.Time) ([]string, error) {
	pod, err := c.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	events, err := c.typed.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("events of pod %s/%s: %w", namespace, name, err)
	}
	var problems []string
	for _, e := range events.Items {
		// Times of events are in whole seconds.
		if e.Source.Component == controllerComponent && !e.LastTimestamp.Time.Before(since.Truncate(time.Second)) {
			problems = append(problems, e.Reason+": "+e.Message)
		}
	}
	return problems, nil
}

// ListPods returns the pods of a namespace, or with "" of the cluster, that have all of
// these labels, as the API server has them in its cache.
func (c *Client) ListPods(ctx context.Context, namespace string, having map[string]string) ([]*corev1.Pod, error) {
	list, err := c.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0", LabelSelector: labels.SelectorFromSet(having).String()})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// Event makes an Event on the pod with this UID.
func (c *Client) Event(ctx context.Context, namespace, name string, uid types.UID, eventType, reason, message string) error {
	now := metav1.Now()
	_, err := c.typed.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid},
		Type:           eventType,
		Reason:         reason,
		Message:        message,
		Source:         corev1.EventSource{Component: c.component},
		FirstTimestamp: now,
		LastTimestamp:  now,
		Count:          1,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("event %s on pod %s/%s: %w", reason, namespace, name, err)
	}
	return nil
}

// controllerComponent is the component that reports problems of pods.
const controllerComponent = "ovn-dhcp-ipam-controller"
