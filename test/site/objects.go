// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Network is a NAD.
type Network struct {
	Namespace, Name string
	// Config are the fields of its configuration; cniVersion, type and
	// netAttachDefName are set where they are missing.
	Config map[string]any
}

// Conf is the network's CNI configuration.
func (n Network) Conf() []byte {
	conf := map[string]any{"cniVersion": "1.0.0", "type": "ovn-k8s-cni-overlay", "netAttachDefName": n.Namespace + "/" + n.Name}
	for k, v := range n.Config {
		conf[k] = v
	}
	data, err := json.Marshal(conf)
	if err != nil {
		panic(fmt.Sprintf("network configuration of a test: %v", err))
	}
	return data
}

// LAN is the plain network of the lab's physical network.
func (s *Site) LAN() Network {
	return Network{Namespace: "default", Name: "lan", Config: map[string]any{
		"name": "lan", "topology": "localnet", "role": "secondary", "physicalNetworkName": s.Lab.Phys.Network,
		"ipam": map[string]any{"type": "dhcp"},
	}}
}

// PutNetwork creates or replaces a NAD.
func (s *Site) PutNetwork(n Network) error {
	return s.put("nad", n.Namespace, n.Name, map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1",
		"kind":       "NetworkAttachmentDefinition",
		"metadata":   map[string]any{"namespace": n.Namespace, "name": n.Name},
		"spec":       map[string]any{"config": string(n.Conf())},
	})
}

// Pod makes a pod of the i-th node. Each pod has a UID of its own, also one that
// is made again under its name.
func (s *Site) Pod(namespace, name string, i int, uid string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{NodeName: s.Lab.Nodes[i].Name},
	}
}

// PutPod creates or replaces a pod.
func (s *Site) PutPod(pod *corev1.Pod) error { return s.put("pod", pod.Namespace, pod.Name, pod) }

// GetPod reads a pod as it is now.
func (s *Site) GetPod(namespace, name string) (*corev1.Pod, error) {
	data, err := os.ReadFile(s.file("pod", namespace, name))
	if err != nil {
		return nil, err
	}
	var pod corev1.Pod
	return &pod, json.Unmarshal(data, &pod)
}

// Delete removes an object: kind is "pod" or "nad".
func (s *Site) Delete(kind, namespace, name string) error {
	return os.Remove(s.file(kind, namespace, name))
}

func (s *Site) file(kind, namespace, name string) string {
	return filepath.Join(s.Objects, kind+"."+namespace+"."+name+".json")
}

func (s *Site) put(kind, namespace, name string, object any) error {
	data, err := json.MarshalIndent(object, "", "  ")
	return errors.Join(err, renameio.WriteFile(s.file(kind, namespace, name), data, 0o644, renameio.WithTempDir(s.Objects)))
}
