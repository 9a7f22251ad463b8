// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestVMName(t *testing.T) {
	for _, test := range []struct {
		labels, annotations map[string]string
		want                string
	}{
		{nil, nil, ""},
		{map[string]string{"app": "web"}, map[string]string{"kubevirt.io/domain": "vm1"}, ""},
		{map[string]string{"kubevirt.io": "virt-handler"}, nil, ""},
		{map[string]string{"kubevirt.io": "virt-launcher"}, nil, "pod"},
		{map[string]string{"kubevirt.io": "virt-launcher"}, map[string]string{"kubevirt.io/domain": "vm1"}, "vm1"},
		{map[string]string{"vm.kubevirt.io/name": "vm1"}, nil, "vm1"},
		{map[string]string{"vm.kubevirt.io/name": "vm1"}, map[string]string{"kubevirt.io/domain": "vm1-long"}, "vm1-long"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Labels: test.labels, Annotations: test.annotations}}
		if got := VMName(pod); got != test.want || IsVM(pod) != (test.want != "") {
			t.Errorf("labels %v, annotations %v: got %q", test.labels, test.annotations, got)
		}
	}
}

func TestVMLabels(t *testing.T) {
	for _, test := range []struct{ labels, want map[string]string }{
		{map[string]string{"app": "web"}, nil},
		{map[string]string{"kubevirt.io": "virt-handler"}, nil},
		{map[string]string{"kubevirt.io": "virt-launcher", "app": "web"}, map[string]string{"kubevirt.io": "virt-launcher"}},
		{map[string]string{"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "vm1"}, map[string]string{"vm.kubevirt.io/name": "vm1"}},
		{map[string]string{"vm.kubevirt.io/name": "vm1", "app": "web"}, map[string]string{"vm.kubevirt.io/name": "vm1"}},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Labels: test.labels}}
		if got := VMLabels(pod); !maps.Equal(got, test.want) {
			t.Errorf("labels %v: got %v, want %v", test.labels, got, test.want)
		}
	}
}

func TestMigrationSource(t *testing.T) {
	began := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	launcher := func(name, vm string, age time.Duration, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(began.Add(-age)),
			Labels: map[string]string{"vm.kubevirt.io/name": vm},
		}}
		if change != nil {
			change(p)
		}
		return p
	}
	target := launcher("target", "vm1", 0, nil)
	for _, test := range []struct {
		name string
		pods []*corev1.Pod
		want string
	}{
		{"alone", nil, ""},
		{"a live one", []*corev1.Pod{launcher("source", "vm1", time.Hour, nil)}, "source"},
		{"another machine's", []*corev1.Pod{launcher("other", "vm2", time.Hour, nil)}, ""},
		{"another namespace's", []*corev1.Pod{launcher("other", "vm1", time.Hour, func(p *corev1.Pod) { p.Namespace = "other" })}, ""},
		{"a plain pod", []*corev1.Pod{launcher("vm1", "vm1", time.Hour, func(p *corev1.Pod) { p.Labels = nil })}, ""},
		{"a newer one", []*corev1.Pod{launcher("newer", "vm1", -time.Hour, nil)}, ""},
		{"of the same second", []*corev1.Pod{launcher("atarget", "vm1", 0, nil), launcher("ztarget", "vm1", 0, nil)}, "atarget"},
		{"a completed one", []*corev1.Pod{launcher("old", "vm1", time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, ""},
		{"a failed one", []*corev1.Pod{launcher("old", "vm1", time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, ""},
		{"one on its way out", []*corev1.Pod{launcher("old", "vm1", time.Hour, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: began} })}, ""},
		{"an earlier target that failed to start", []*corev1.Pod{launcher("target1", "vm1", time.Minute, nil), launcher("source", "vm1", time.Hour, nil)}, "source"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if source := MigrationSource(target, append(test.pods, target)); source != nil {
				got = source.Name
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
