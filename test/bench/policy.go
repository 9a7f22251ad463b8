// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

const (
	// out is the label by which a pod leaves the set of all pods, and setOfAll the
	// end of that set's id.
	out      = "out"
	setOfAll = ":PodSelector:" + namespace + "_LS{ME:{LSR{Key:" + out + ",Operator:DoesNotExist,Values:[],}},}:v4"
	// team is the label of the namespace, and setOfTeam that of its pods.
	team      = "team"
	setOfTeam = ":PodSelector:LS{ML:{" + team + ": red,},}_LS{}:v4"
	// group is the label by which pods are in one of some groups.
	group  = "group"
	groups = 20

	// policySamples is how many single changes are made.
	policySamples = 100
)

// groupOf is the group of a pod, by its number.
func groupOf(pod string) string {
	n, _ := strconv.Atoi(strings.TrimPrefix(pod, "pod-")) // of those that have one
	return strconv.Itoa(n % groups)
}

// policies measures policies on one network that grows.
func (b *bench) policies(ctx context.Context) error {
	type measures = []func(*system, context.Context) error
	many := func(n int) func(*system, context.Context) error {
		return func(s *system, ctx context.Context) error { return s.readdressUnder(ctx, n) }
	}
	return b.growing(ctx, []size{
		{100, measures{(*system).relabel}},
		{500, measures{many(20)}},
		{1000, measures{(*system).relabel, (*system).relabelNamespace}},
		{3000, measures{(*system).relabel}},
		{5000, measures{many(200), (*system).restart}},
	})
}

func policyResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1beta1", Resource: "multi-networkpolicies"}
}

// addPolicy creates a policy on the network, for ingress from a peer.
func (s *system) addPolicy(ctx context.Context, name string, pods, peer map[string]any) error {
	_, err := s.plane.Dynamic.Resource(policyResource()).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": policyResource().GroupVersion().String(), "kind": "MultiNetworkPolicy",
		"metadata": map[string]any{"namespace": namespace, "name": name, "annotations": map[string]any{"k8s.v1.cni.cncf.io/policy-for": network}},
		"spec":     map[string]any{"podSelector": pods, "ingress": []any{map[string]any{"from": []any{peer}}}},
	}}, metav1.CreateOptions{})
	return err
}

// removePolicy removes a policy, and returns when a set has gone that only it
// uses.
func (s *system) removePolicy(ctx context.Context, name, set string) error {
	if err := s.plane.Dynamic.Resource(policyResource()).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := s.nb.sets.await(ctx, set, func(a addressSet) bool { return a.UUID == "" })
	return err
}

// ofSize is a set with so many addresses.
func ofSize(n int) func(addressSet) bool {
	return func(a addressSet) bool { return a.UUID != "" && a.size == n }
}

// relabel has a policy that selects all pods, also as peers, and measures how long
// the set takes to follow a pod's label, and the processor time.
func (s *system) relabel(ctx context.Context) error {
	progress("policies: labels at %d pods", len(s.pods))
	var seen, byHand times.Times
	var cpu time.Duration
	n := len(s.pods)
	err := s.guarded(ctx, func(ctx context.Context) error {
		exists := map[string]any{"podSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": out, "operator": "DoesNotExist"}}}}
		if err := s.addPolicy(ctx, "all", map[string]any{}, exists); err != nil {
			return err
		}
		if _, err := s.nb.sets.await(ctx, setOfAll, ofSize(n)); err != nil {
			return err
		}
		before, err := s.running.cpu()
		if err != nil {
			return err
		}
		for i := range policySamples {
			if err := s.leave(ctx, s.pods[i%n].pod, n, &seen); err != nil {
				return err
			}
		}
		after, err := s.running.cpu()
		if err != nil {
			return err
		}
		cpu = (after - before) / (2 * policySamples)
		if byHand, err = s.nb.bareSet(ctx, n, policySamples); err != nil {
			return err
		}
		return s.removePolicy(ctx, "all", setOfAll)
	})
	if err != nil {
		return err
	}
	upstream := map[int]string{100: "7 ms", 1000: "21 ms", 3000: "58 ms"}[n]
	ofCPU := map[int]string{1000: "26 ms", 3000: "77 ms"}[n]
	s.table.add(
		latency(fmt.Sprintf("pod's label seen → address set changed, %d pods", n), seen, "bare set changed", byHand).against("≤ 5 ms", upstream),
		row{figure: fmt.Sprintf("CPU for a pod's label, %d pods", n), got: fmt.Sprintf("%.2f ms", times.Milliseconds(cpu)), goal: "flat", upstream: ofCPU},
	)
	return nil
}

// leave has a pod leave the set of all pods, and come back.
func (s *system) leave(ctx context.Context, pod string, n int, to *times.Times) error {
	for _, step := range []struct {
		patch string
		here  bool
		size  int
	}{{`{"metadata":{"labels":{"` + out + `":"x"}}}`, true, n - 1}, {`{"metadata":{"labels":{"` + out + `":null}}}`, false, n}} {
		if _, err := s.api.Patch(ctx, pod, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{}); err != nil {
			return err
		}
		labelled := func(p *corev1.Pod) bool { return p != nil && (p.Labels[out] != "") == step.here }
		seen, err := s.seen.await(ctx, pod, labelled)
		if err != nil {
			return err
		}
		set, err := s.nb.sets.await(ctx, setOfAll, ofSize(step.size))
		if err != nil {
			return err
		}
		*to = append(*to, set.at.Sub(seen.at))
	}
	return nil
}

// relabelNamespace measures how long a set takes that all pods come into, since
// their namespace gets a label.
func (s *system) relabelNamespace(ctx context.Context) error {
	progress("policies: the namespace's label at %d pods", len(s.pods))
	var took time.Duration
	var cpu time.Duration
	err := s.guarded(ctx, func(ctx context.Context) error {
		red := map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{team: "red"}}}
		if err := s.addPolicy(ctx, "red", map[string]any{}, red); err != nil {
			return err
		}
		if _, err := s.nb.sets.await(ctx, setOfTeam, ofSize(0)); err != nil {
			return err
		}
		before, err := s.running.cpu()
		if err != nil {
			return err
		}
		began := time.Now()
		patch := []byte(`{"metadata":{"labels":{"` + team + `":"red"}}}`)
		if _, err := s.client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		set, err := s.nb.sets.await(ctx, setOfTeam, ofSize(len(s.pods)))
		if err != nil {
			return err
		}
		took = set.at.Sub(began)
		after, err := s.running.cpu()
		if err != nil {
			return err
		}
		cpu = after - before
		return s.removePolicy(ctx, "red", setOfTeam)
	})
	if err != nil {
		return err
	}
	s.table.add(row{figure: fmt.Sprintf("namespace's label changed → address set with %d pods", len(s.pods)),
		got: fmt.Sprintf("%.0f ms, CPU %.0f ms", times.Milliseconds(took), times.Milliseconds(cpu))})
	return nil
}

// conditions awaits that all policies have a condition, which takes longer than
// their rows.
func (s *system) conditions(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := s.plane.Dynamic.Resource(policyResource()).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		without := slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return u.Object["status"] == nil })
		if !without {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// readdressUnder measures what a change of a pod's address costs where there are
// so many policies.
func (s *system) readdressUnder(ctx context.Context, policies int) error {
	progress("policies: addresses at %d pods and %d policies", len(s.pods), policies)
	var followed latencies
	var cpu time.Duration
	err := s.guarded(ctx, func(ctx context.Context) error {
		labels := func(n int) map[string]any {
			return map[string]any{"matchLabels": map[string]any{group: strconv.Itoa(n % groups)}}
		}
		for ; s.policies < policies; s.policies++ {
			err := s.addPolicy(ctx, fmt.Sprintf("policy-%d", s.policies), labels(s.policies), map[string]any{"podSelector": labels(s.policies + 1)})
			if err != nil {
				return err
			}
		}
		if err := s.conditions(ctx); err != nil {
			return err
		}
		// When this pod's change is there, so is all before it.
		if err := s.readdress(ctx, 9); err != nil {
			return err
		}
		if _, err := s.nb.ports.await(ctx, s.pods[0].port(), s.pods[0].pinned); err != nil {
			return err
		}
		before, err := s.running.cpu()
		if err != nil {
			return err
		}
		for i := range policySamples {
			a := &s.pods[i]
			a.addr = fmt.Sprintf("10.201.%d.%d", len(s.pods)/100, i+1)
			if err := s.change(ctx, *a, a.leased(), a.pinned, &followed); err != nil {
				return err
			}
		}
		after, err := s.running.cpu()
		cpu = (after - before) / policySamples
		return err
	})
	if err != nil {
		return err
	}
	r := row{figure: fmt.Sprintf("annotation seen → address in port and sets, %d pods, %d policies", len(s.pods), policies), got: percentiles(followed.seen)}
	c := row{figure: fmt.Sprintf("CPU for an address, %d pods, %d policies", len(s.pods), policies), got: fmt.Sprintf("%.2f ms", times.Milliseconds(cpu))}
	if first := s.first.readdressed; first != 0 {
		r.yardstick, r.ratio, r.goal = "at the first size "+fmt.Sprintf("%.2f ms", times.Milliseconds(first)), times.Ratio(followed.seen.Median(), first), "ratio ≤ 2"
		c.yardstick, c.ratio, c.goal = "at the first size "+fmt.Sprintf("%.2f ms", times.Milliseconds(s.first.readdressing)), times.Ratio(cpu, s.first.readdressing), "ratio ≤ 2"
	}
	s.first.readdressed, s.first.readdressing = followed.seen.Median(), cpu
	s.table.add(r, c)
	return nil
}
