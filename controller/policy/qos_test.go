// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nadNetworks = `[{networkSelectionType: NetworkAttachmentDefinitions, networkAttachmentDefinitionSelector: {namespaceSelector: {matchLabels: {team: a}}, networkSelector: {matchLabels: {net: x}}}}]`

func qosYAML(rules string) string { return qosNetworksYAML(nadNetworks, rules) }

func qosNetworksYAML(networks, rules string) string {
	return fmt.Sprintf(`{apiVersion: k8s.ovn.org/v1alpha1, kind: NetworkQoS, metadata: {name: q, namespace: ns},
spec: {priority: 1, networkSelectors: %s, egress: [%s]}}`, networks, rules)
}

func TestQoSSelects(t *testing.T) {
	const rendered = `{networkSelectionType: ClusterUserDefinedNetworks, clusterUserDefinedNetworkSelector: {networkSelector: {matchLabels: {net: x}}}}`
	owned := func(kind, version string) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "x", Controller: &yes}}
	}
	type labels = map[string]string
	tests := map[string]struct {
		networks        string
		nad             metav1.ObjectMeta
		namespaceLabels labels
		want            bool
	}{
		"NAD":                      {nadNetworks, metav1.ObjectMeta{Labels: labels{"net": "x"}}, labels{"team": "a"}, true},
		"other NAD":                {nadNetworks, metav1.ObjectMeta{Labels: labels{"net": "y"}}, labels{"team": "a"}, false},
		"NAD of other namespace":   {nadNetworks, metav1.ObjectMeta{Labels: labels{"net": "x"}}, labels{"team": "b"}, false},
		"CUDN":                     {"[" + rendered + "]", metav1.ObjectMeta{Labels: labels{"net": "x"}, OwnerReferences: owned("ClusterUserDefinedNetwork", "k8s.ovn.org/v1")}, nil, true},
		"NAD that is of no CUDN":   {"[" + rendered + "]", metav1.ObjectMeta{Labels: labels{"net": "x"}}, nil, false},
		"NAD of another owner":     {"[" + rendered + "]", metav1.ObjectMeta{Labels: labels{"net": "x"}, OwnerReferences: owned("ClusterUserDefinedNetwork", "example.org/v1")}, nil, false},
		"CUDN of other labels":     {"[" + rendered + "]", metav1.ObjectMeta{OwnerReferences: owned("ClusterUserDefinedNetwork", "k8s.ovn.org/v1")}, nil, false},
		"one of several selectors": {strings.TrimSuffix(nadNetworks, "]") + ", " + rendered + "]", metav1.ObjectMeta{Labels: labels{"net": "x"}}, labels{"team": "a"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			q, err := ParseQoS(object(t, qosNetworksYAML(tt.networks, "{dscp: 1}")))
			if err != nil {
				t.Fatal(err)
			}
			if got := q.Selects(&tt.nad, tt.namespaceLabels); got != tt.want {
				t.Errorf("selects it: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestQoSErrors(t *testing.T) {
	for text, want := range map[string]string{
		qosNetworksYAML(`[]`, `{dscp: 1}`):                                                                                              `spec.networkSelectors: "": must select networks: the default network is not served`,
		qosNetworksYAML(`[{networkSelectionType: DefaultNetwork}]`, `{dscp: 1}`):                                                        `spec.networkSelectors[0].networkSelectionType: "DefaultNetwork": must be NetworkAttachmentDefinitions or ClusterUserDefinedNetworks`,
		qosNetworksYAML(`[{networkSelectionType: NetworkAttachmentDefinitions}]`, `{dscp: 1}`):                                          `spec.networkSelectors[0]: map[networkSelectionType:NetworkAttachmentDefinitions]: must have the selector`,
		qosNetworksYAML(`[{networkSelectionType: SecondaryUserDefinedNetworks, secondaryUserDefinedNetworkSelector: {}}]`, `{dscp: 1}`): `"SecondaryUserDefinedNetworks": must be`,
		qosYAML(`{}`):                                  `spec.egress[0]: map[]: needs dscp`,
		qosYAML(`{dscp: 64}`):                          `spec.egress[0].dscp: 64: must be a number from 0 to 63`,
		qosYAML(`{dscp: -1}`):                          `spec.egress[0].dscp: -1: must be a number from 0 to 63`,
		qosYAML(`{dscp: 1, bandwidth: {rate: 0}}`):     `spec.egress[0].bandwidth.rate: 0: must be a number from 1 to 4294967295`,
		qosYAML(`{dscp: 1, bandwidth: {burst: 1}}`):    `spec.egress[0].bandwidth.burst: 1: needs rate`,
		qosYAML(`{dscp: 1, classifier: {to: [{}]}}`):   `spec.egress[0].classifier.to[0]: map[]: needs podSelector`,
		qosYAML(`{dscp: 1, classifier: {from: [{}]}}`): `spec.egress[0].classifier.from: [map[]]: is not a field`,
		qosYAML(`{dscp: 1, classifier: {to: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}}`): `ipBlock can't be combined`,
		qosYAML(`{dscp: 1, classifier: {ports: [{protocol: IGMP}]}}`):                            `spec.egress[0].classifier.ports[0].protocol: "IGMP"`,
		qosYAML(strings.Repeat(`{dscp: 1}, `, 21)):                                               `spec.egress: 21: rules are too many, the limit is 20`,
		strings.Replace(qosYAML(`{dscp: 1}`), "priority: 1", "priority: 101", 1):                 `spec.priority: 101: must be a number from 0 to 100`,
		strings.Replace(qosYAML(`{dscp: 1}`), "priority: 1", "podSelector: x", 1):                `spec.podSelector: "x": must be an object`,
		strings.Replace(qosYAML(`{dscp: 1}`), "v1alpha1", "v1", 1):                               `apiVersion: "k8s.ovn.org/v1"`,
	} {
		q, err := ParseQoS(object(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || q != nil {
			t.Errorf("%s: %v, error %v, want %s", text, q, err, want)
		}
	}
}
