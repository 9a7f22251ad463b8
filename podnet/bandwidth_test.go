// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"strings"
	"testing"
)

func TestParseBandwidth(t *testing.T) {
	for _, test := range []struct {
		ingress, egress string
		want            Bandwidth
		err             string
	}{
		{"", "", Bandwidth{}, ""},
		{"10M", "", Bandwidth{Ingress: 10e6}, ""},
		{"", "1G", Bandwidth{Egress: 1e9}, ""},
		{"1k", "1P", Bandwidth{1e3, 1e15}, ""},
		{"fast", "", Bandwidth{}, `kubernetes.io/ingress-bandwidth: "fast"`},
		{"", "10", Bandwidth{}, `kubernetes.io/egress-bandwidth: "10"`},
		{"2P", "", Bandwidth{}, `kubernetes.io/ingress-bandwidth: "2P"`},
		{"-1M", "", Bandwidth{}, `kubernetes.io/ingress-bandwidth: "-1M"`},
	} {
		annotations := map[string]string{}
		if test.ingress != "" {
			annotations[IngressBandwidthAnnotation] = test.ingress
		}
		if test.egress != "" {
			annotations[EgressBandwidthAnnotation] = test.egress
		}
		got, err := ParseBandwidth(annotations)
		if got != test.want {
			t.Errorf("%q, %q: got %+v", test.ingress, test.egress, got)
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q, %q: got error %v, want one with %q", test.ingress, test.egress, err, test.err)
		}
	}
}
