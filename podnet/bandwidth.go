// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotations of a pod that limit its bandwidth, in bits per second.
const (
	IngressBandwidthAnnotation = "kubernetes.io/ingress-bandwidth"
	EgressBandwidthAnnotation  = "kubernetes.io/egress-bandwidth"
)

// Limits of the annotations' values, as Kubernetes has them.
const (
	minBandwidth = 1e3
	maxBandwidth = 1e15
)

// Bandwidth limits what a pod receives (ingress) and sends (egress), in bits
// per second; 0 is no limit.
type Bandwidth struct{ Ingress, Egress int64 }

// ParseBandwidth reads the limits from a pod's annotations.
func ParseBandwidth(annotations map[string]string) (Bandwidth, error) {
	var b Bandwidth
	for key, into := range map[string]*int64{IngressBandwidthAnnotation: &b.Ingress, EgressBandwidthAnnotation: &b.Egress} {
		value, ok := annotations[key]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return Bandwidth{}, fmt.Errorf("annotation %s: %q: %w", key, value, err)
		}
		if *into = q.Value(); *into < minBandwidth || *into > maxBandwidth {
			return Bandwidth{}, fmt.Errorf("annotation %s: %q: must be between 1k and 1P bits per second", key, value)
		}
	}
	return b, nil
}
