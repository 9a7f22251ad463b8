// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// objects is where a site's pods and NADs are.
type objects interface {
	// flags tell a daemon where, acting as the service account of that name.
	flags(account string) ([]string, error)
	// putPod creates or replaces a pod and returns it as it is then.
	putPod(pod *corev1.Pod) (*corev1.Pod, error)
	getPod(namespace, name string) (*corev1.Pod, error)
	putNetwork(namespace, name, config string) error
	// remove removes a "pod" or a "nad".
	remove(kind, namespace, name string) error
}

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

// LAN is the network of the lab's physical network.
func (s *Site) LAN() Network {
	config := map[string]any{
		"name": "lan", "topology": "localnet", "role": "secondary", "physicalNetworkName": s.Lab.Phys.Network,
		"ipam": map[string]any{"type": "dhcp"},
	}
	if s.Lab.Phys.VLAN != 0 {
		config["vlanID"] = s.Lab.Phys.VLAN
	}
	return Network{Namespace: "default", Name: "lan", Config: config}
}

// PutNetwork creates or replaces a NAD.
func (s *Site) PutNetwork(n Network) error {
	return s.objects.putNetwork(n.Namespace, n.Name, string(n.Conf()))
}

// Pod makes a pod of the i-th node, which PutPod is to create. The Kubernetes
// API gives it another UID.
func (s *Site) Pod(namespace, name string, i int, uid string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec: corev1.PodSpec{
			NodeName:   s.Lab.Nodes[i].Name,
			Containers: []corev1.Container{{Name: "app", Image: "app"}},
		},
	}
}

// PutPod creates or replaces a pod, and sets what comes back, as its UID.
func (s *Site) PutPod(pod *corev1.Pod) error {
	now, err := s.objects.putPod(pod)
	if err == nil {
		*pod = *now
	}
	return err
}

// GetPod reads a pod as it is now.
func (s *Site) GetPod(namespace, name string) (*corev1.Pod, error) {
	return s.objects.getPod(namespace, name)
}

// Delete removes an object: kind is "pod" or "nad".
func (s *Site) Delete(kind, namespace, name string) error {
	return s.objects.remove(kind, namespace, name)
}
