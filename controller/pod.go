// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// pod is what matters of a pod. It is not changed once made.
type pod struct {
	uid, node  string
	created    time.Time
	annotation string
	// active is a pod that is scheduled and not completed.
	active bool
	// err is why the annotation, or one key in it, can't be read.
	err error
	// entries is nil when the annotation can't be read at all.
	entries []entry
}

// entry is what the annotation says about one attachment.
type entry struct {
	key   key
	mac   string
	addrs []netip.Addr
	// err is why the entry can't be used; the other fields are not set then.
	err error
}

func parsePod(p *corev1.Pod) *pod {
	out := &pod{
		uid:        string(p.UID),
		node:       p.Spec.NodeName,
		created:    p.CreationTimestamp.Time,
		annotation: p.Annotations[podnet.Annotation],
		active:     p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed,
		entries:    []entry{},
	}
	networks, err := podnet.ParseNetworks(out.annotation)
	if err != nil {
		out.err, out.entries = err, nil
		return out
	}
	for _, nadKey := range networks.Keys() {
		switch {
		case nadKey == "default": // the cluster's own network
		case !validNADKey(nadKey):
			out.err = fmt.Errorf("annotation %s: key %q is not namespace/name or namespace/name/number", podnet.Annotation, nadKey)
		default:
			e := parseEntry(networks, nadKey)
			e.key = key{nadKey: nadKey, namespace: p.Namespace, pod: p.Name}
			out.entries = append(out.entries, e)
		}
	}
	return out
}

func parseEntry(networks podnet.Networks, nadKey string) entry {
	e, _, err := networks.Entry(nadKey)
	if err == nil && e.IPAMMode != podnet.IPAMTypeDHCP {
		err = fmt.Errorf("annotation %s: entry %q: field ipam_mode: must be %q for a DHCP network, is %q",
			podnet.Annotation, nadKey, podnet.IPAMTypeDHCP, e.IPAMMode)
	}
	if err != nil {
		return entry{err: err}
	}
	out := entry{mac: e.MAC.String()}
	for _, prefix := range e.Addrs {
		if a := prefix.Addr(); !slices.Contains(out.addrs, a) {
			out.addrs = append(out.addrs, a)
		}
	}
	return out
}

// problems are what is wrong with a pod as a whole.
func (p *pod) problems(o object) []problem {
	if p == nil || p.err == nil {
		return nil
	}
	return []problem{{o, ReasonInvalidAnnotation, p.err.Error()}}
}

// same reports whether the pods' rows are the same.
func (p *pod) same(other *pod) bool {
	return p.uid == other.uid && p.node == other.node && p.created.Equal(other.created) &&
		p.annotation == other.annotation && p.active == other.active
}

// entry is what the annotation says about an attachment; ok is false when it
// does not say anything.
func (p *pod) entry(k key) (e entry, ok bool) {
	for _, e := range p.entries {
		if e.key == k {
			return e, true
		}
	}
	return entry{}, false
}
