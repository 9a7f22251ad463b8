// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// vmKind is how the pods of one runtime for virtual machines are recognised.
type vmKind struct {
	// label marks a pod; an empty value stands for any.
	label, value string
	// nameAnnotation and nameLabel have the machine's name. A label's value can be
	// too short for it, so the annotation comes first.
	nameAnnotation, nameLabel string
}

func vmKinds() []vmKind {
	const (
		domain = "kubevirt.io/domain"
		name   = "vm.kubevirt.io/name"
	)
	return []vmKind{
		{"kubevirt.io", "virt-launcher", domain, name},
		{name, "", domain, name},
	}
}

// IsVM reports whether a virtual machine runs in the pod. Its guest then is the
// DHCP client, not the pod.
func IsVM(pod *corev1.Pod) bool { return VMName(pod) != "" }

// VMName is the name, in the pod's namespace, of the virtual machine that runs in
// the pod; "" if none does. It is the pod's own name when the pod doesn't say.
func VMName(pod *corev1.Pod) string {
	for _, k := range vmKinds() {
		if value, ok := pod.Labels[k.label]; ok && (k.value == "" || k.value == value) {
			return cmp.Or(pod.Annotations[k.nameAnnotation], pod.Labels[k.nameLabel], pod.Name)
		}
	}
	return ""
}

// VMLabels are labels that every pod of the virtual machine in a pod has, and few
// others: the machine's name where it is one, else what makes it a machine's pod. nil
// if there is no machine.
func VMLabels(pod *corev1.Pod) map[string]string {
	for _, k := range vmKinds() {
		value, ok := pod.Labels[k.label]
		if !ok || k.value != "" && k.value != value {
			continue
		}
		if name, ok := pod.Labels[k.nameLabel]; ok {
			return map[string]string{k.nameLabel: name}
		}
		return map[string]string{k.label: value}
	}
	return nil
}

// SameVM reports whether one virtual machine runs in both pods, which are two: it
// migrates from one to the other, or has been started again.
func SameVM(a, b *corev1.Pod) bool {
	return a.UID != b.UID && a.Namespace == b.Namespace && VMName(a) != "" && VMName(a) == VMName(b)
}

// MigrationSource is the pod, among all, from which pod's virtual machine
// migrates: the oldest one of the same machine that is older than pod and live.
// nil if there is none.
func MigrationSource(pod *corev1.Pod, all []*corev1.Pod) *corev1.Pod {
	var source *corev1.Pod
	for _, p := range all {
		if SameVM(p, pod) && Live(p) && older(p, pod) && (source == nil || older(p, source)) {
			source = p
		}
	}
	return source
}

// Live reports whether a pod is neither completed nor being deleted.
func Live(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil
}

// older orders the pods of a virtual machine.
func older(a, b *corev1.Pod) bool {
	created := func(p *corev1.Pod) time.Time { return p.CreationTimestamp.Time }
	return cmp.Or(created(a).Compare(created(b)), cmp.Compare(a.Name, b.Name)) < 0
}
