// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// labelsOf are the labels of a namespace. Kubernetes gives each one its name; it
// is there too where nobody has made an object of the namespace.
func (in *inputs) labelsOf(namespace string) map[string]string {
	if labels := in.namespaces[namespace]; labels[corev1.LabelMetadataName] != "" {
		return labels
	}
	labels := maps.Clone(in.namespaces[namespace])
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = namespace
	return labels
}

// setNamespace sets the labels of a namespace, nil for one without an object.
func (in *inputs) setNamespace(name string, labels map[string]string) {
	before := in.labelsOf(name)
	if in.namespaces[name] = labels; labels == nil {
		delete(in.namespaces, name)
	}
	if maps.Equal(before, in.labelsOf(name)) {
		return
	}
	for pod := range in.podsByNamespace.of(name) {
		in.touch(in.byPod.of(pod))
	}
	// It may have NADs that are selected by its labels.
	in.regulations.unplace(kindQoS)
}
