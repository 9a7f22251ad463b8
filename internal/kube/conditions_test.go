// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	const earlier, later = "2026-01-01T00:00:00Z", "2026-01-02T03:04:05Z"
	condition := func(zone, status, reason, message, transition string) map[string]any {
		return map[string]any{"type": "Ready-In-Zone-" + zone, "status": status, "observedGeneration": int64(7), "reason": reason,
			"message": message, "lastTransitionTime": transition}
	}
	const applied = "The rules are in OVN's northbound database."
	good := func(transition string) map[string]any {
		return condition("global", "True", "Success", applied, transition)
	}
	bad := condition("global", "False", "Failed", "A: a; B: b", later)
	for name, test := range map[string]struct {
		kind, zone string
		before     any // status
		problems   map[string]string
		want       map[string]any // nil for no change
	}{
		"new":            {kindPolicy, "", nil, nil, map[string]any{"conditions": []any{good(later)}}},
		"as it is":       {kindPolicy, "", map[string]any{"conditions": []any{good(earlier)}}, nil, nil},
		"QoS":            {kindQoS, "", map[string]any{"conditions": []any{good(earlier)}}, nil, map[string]any{"status": qosApplied, "conditions": []any{good(earlier)}}},
		"QoS as it is":   {kindQoS, "", map[string]any{"status": qosApplied, "conditions": []any{good(earlier)}}, nil, nil},
		"QoS in a zone":  {kindQoS, "z", nil, nil, map[string]any{"conditions": []any{condition("z", "True", "Success", applied, later)}}},
		"problems":       {kindQoS, "", map[string]any{"conditions": []any{good(earlier)}}, map[string]string{"B": "b", "A": "a"}, map[string]any{"status": qosNotApplied, "conditions": []any{bad}}},
		"nonsense":       {kindPolicy, "", map[string]any{"conditions": "x"}, nil, map[string]any{"conditions": []any{good(later)}}},
		"more nonsense":  {kindPolicy, "", "x", nil, map[string]any{"conditions": []any{good(later)}}},
		"another zone's": {kindPolicy, "", map[string]any{"conditions": []any{condition("z", "True", "Success", applied, earlier)}}, nil, map[string]any{"conditions": []any{good(later)}}},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"kind": test.kind, "metadata": map[string]any{"generation": int64(7)}, "status": test.before}}
			got, changed := statusOf(u, test.zone, test.problems, now)
			if !changed {
				got = nil
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("ä", 20)
	for most := 3; most <= len(long); most++ {
		if got := cut(long, most); len(got) > most || !utf8.ValidString(got) {
			t.Errorf("cut at %d: %q", most, got)
		}
	}
	if got := cut(long, len(long)); got != long {
		t.Errorf("got %q", got)
	}
}
