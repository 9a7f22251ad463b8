// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// SelectionAnnotation is the pod annotation of the Network Plumbing Working
// Group in which a pod selects its networks.
const SelectionAnnotation = "k8s.v1.cni.cncf.io/networks"

// Selection is one network selection element of a pod.
type Selection struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
	// DefaultRoute, when not empty, asks that this attachment's gateway be
	// the pod's default route.
	DefaultRoute []string `json:"default-route,omitempty"`
}

// ParseSelections parses the value of a pod's SelectionAnnotation, either a
// JSON list or a comma list of [namespace/]name[@interface]. Elements without
// a namespace get the pod's.
func ParseSelections(value, podNamespace string) ([]Selection, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil, nil
	}
	var selections []Selection
	if strings.HasPrefix(value, "[") {
		if err := json.Unmarshal([]byte(value), &selections); err != nil {
			return nil, fmt.Errorf("annotation %s is not a JSON list of network selection elements: %w", SelectionAnnotation, err)
		}
	} else {
		for item := range strings.SplitSeq(value, ",") {
			var s Selection
			name, ifname, _ := strings.Cut(strings.TrimSpace(item), "@")
			s.Interface = ifname
			if ns, n, ok := strings.Cut(name, "/"); ok {
				s.Namespace, s.Name = ns, n
			} else {
				s.Name = name
			}
			selections = append(selections, s)
		}
	}
	for i := range selections {
		if selections[i].Namespace == "" {
			selections[i].Namespace = podNamespace
		}
		if s := selections[i]; s.Name == "" || strings.Contains(s.Name, "/") {
			return nil, fmt.Errorf("annotation %s: element %d: field name: invalid value %q", SelectionAnnotation, i, s.Name)
		}
	}
	return selections, nil
}

// Request is what a pod asks of one attachment.
type Request struct {
	// NADKey is "namespace/name", or "namespace/name/n" for the n-th further
	// attachment of the NAD in the pod.
	NADKey string
	// MAC is nil unless the pod asks for one.
	MAC net.HardwareAddr
	// DefaultRoute is true when this attachment's gateway is to be the pod's
	// default route.
	DefaultRoute bool
}

// FindRequest is the request of the attachment with interface ifname of NAD
// nadName ("namespace/name"). The element is the one that names the interface,
// else the one whose position gives the interface that name (net1, net2, …). A
// pod that selects this NAD nowhere, as one made by a runtime without
// Kubernetes or the one of a default network, asks for nothing in particular.
func FindRequest(selections []Selection, nadName, ifname string) (Request, error) {
	key, seen := nadName, 0
	for i, s := range selections {
		if s.Namespace+"/"+s.Name != nadName {
			continue
		}
		if seen > 0 {
			key = fmt.Sprintf("%s/%d", nadName, seen)
		}
		seen++
		if s.interfaceName(i) == ifname {
			return s.request(key)
		}
	}
	if seen > 0 {
		return Request{}, fmt.Errorf("annotation %s: no element gives %s the interface %q", SelectionAnnotation, nadName, ifname)
	}
	return Request{NADKey: nadName}, nil
}

func (s *Selection) interfaceName(position int) string {
	if s.Interface != "" {
		return s.Interface
	}
	return fmt.Sprintf("net%d", position+1)
}

func (s *Selection) request(key string) (Request, error) {
	r := Request{NADKey: key, DefaultRoute: len(s.DefaultRoute) > 0}
	for _, gw := range s.DefaultRoute {
		if _, err := netip.ParseAddr(gw); err != nil {
			return Request{}, fmt.Errorf("annotation %s: %s: field default-route: invalid value %q: %w", SelectionAnnotation, key, gw, err)
		}
	}
	if s.MAC == "" {
		return r, nil
	}
	mac, err := ParseMAC(s.MAC)
	if err != nil {
		return Request{}, fmt.Errorf("annotation %s: %s: field mac: %w", SelectionAnnotation, key, err)
	}
	r.MAC = mac
	return r, nil
}
