// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// pod is what matters of a pod. It is not changed once made.
type pod struct {
	namespace  string
	uid, node  string
	labels     map[string]string
	created    time.Time
	annotation string
	// vm names the virtual machine that runs in the pod, "" for none.
	vm string
	// active is a pod that is scheduled and not completed, leaving one that is being
	// deleted.
	active, leaving bool
	// err is why the annotation, or one key in it, can't be read.
	err error
	// entries is nil when the annotation can't be read at all.
	entries []entry
}

// entry is what the annotation says about one attachment.
type entry struct {
	key key
	mac string
	// addrs are distinct, with the length of their subnet.
	addrs    []netip.Prefix
	gateways []netip.Addr
	server   netip.Addr // DHCP server, the zero Addr if unknown
	// state is the lease's, "" where another program wrote the entry.
	state string
	// err is why the entry can't be used; the other fields are not set then.
	err error
}

func parsePod(p *corev1.Pod) *pod {
	out := &pod{
		namespace:  p.Namespace,
		uid:        string(p.UID),
		labels:     p.Labels,
		node:       p.Spec.NodeName,
		created:    p.CreationTimestamp.Time,
		annotation: p.Annotations[podnet.Annotation],
		vm:         podnet.VMName(p),
		active:     p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed,
		leaving:    p.DeletionTimestamp != nil,
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
			e.key = portKey(nadKey, p.Namespace, p.Name)
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
	out := entry{mac: e.MAC.String(), gateways: e.Gateways}
	for _, prefix := range e.Addrs {
		if _, twice := out.prefix(prefix.Addr()); !twice {
			out.addrs = append(out.addrs, prefix)
		}
	}
	if d := e.DHCP; d != nil {
		out.state = d.State
		if d.Server != nil {
			out.server = *d.Server
		}
	}
	return out
}

// prefix is an address of the entry with the length of its subnet; ok is false
// when the entry doesn't have it.
func (e entry) prefix(a netip.Addr) (p netip.Prefix, ok bool) {
	i := slices.IndexFunc(e.addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return e.addrs[i], true
}

// open reports whether nothing has confirmed what address the port has. That of
// a pod is on its interface as soon as it is known; that of a virtual machine is
// for its guest to take, or not.
func (p *pod) open(e entry) bool { return p.vm != "" && e.state != podnet.StateBound }

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
		p.annotation == other.annotation && p.active == other.active && p.leaving == other.leaving && p.vm == other.vm &&
		maps.Equal(p.labels, other.labels)
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
