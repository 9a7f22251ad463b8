// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkAttachmentDefinition is the part of k8s.cni.cncf.io/v1's resource
// that is of use here.
type NetworkAttachmentDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		// Config is a CNI network configuration in JSON.
		Config string `json:"config"`
	} `json:"spec"`
}
