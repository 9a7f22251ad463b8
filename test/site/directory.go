// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
)

// directory has the objects as files.
type directory string

func (d directory) flags(string) ([]string, error) { return []string{"--objects", string(d)}, nil }

func (d directory) putPod(pod *corev1.Pod) (*corev1.Pod, error) {
	return pod, d.put("pod", pod.Namespace, pod.Name, pod)
}

func (d directory) getPod(namespace, name string) (*corev1.Pod, error) {
	data, err := os.ReadFile(d.file("pod", namespace, name))
	if err != nil {
		return nil, err
	}
	var pod corev1.Pod
	return &pod, json.Unmarshal(data, &pod)
}

func (d directory) putNetwork(namespace, name, config string) error {
	return d.put("nad", namespace, name, map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1",
		"kind":       "NetworkAttachmentDefinition",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec":       map[string]any{"config": config},
	})
}

func (d directory) remove(kind, namespace, name string) error {
	return os.Remove(d.file(kind, namespace, name))
}

func (d directory) file(kind, namespace, name string) string {
	return filepath.Join(string(d), kind+"."+namespace+"."+name+".json")
}

func (d directory) put(kind, namespace, name string, object any) error {
	data, err := json.MarshalIndent(object, "", "  ")
	return errors.Join(err, renameio.WriteFile(d.file(kind, namespace, name), data, 0o644, renameio.WithTempDir(string(d))))
}
