// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// Reasons of Events about a lease that the server has changed.
const (
	reasonAddressChanged = "DHCPAddressChanged"
	reasonLeaseChanged   = "DHCPLeaseChanged"
)

// change is what to tell of a lease that takes the place of old, which is the zero Lease
// if there was none: the reason of the Event, and what is different now. Both are empty
// if the two are put to use in the same way, and are of the same server.
func change(network string, old, now dhcp.Lease) (reason, message string) {
	if !old.Addr.IsValid() {
		old = now // what it had before it was lost is not known
		old.Addr = netip.Prefix{}
	}
	reason = reasonLeaseChanged
	if old.Addr.Addr() != now.Addr.Addr() {
		reason = reasonAddressChanged
	}
	var different []string
	note := ""
	before := particulars(old)
	for i, p := range particulars(now) {
		if slices.Equal(before[i].values, p.values) {
			continue
		}
		different = append(different, p.String())
		if p.resolver {
			note = "; DNS of a running pod can't be changed"
		}
	}
	switch {
	case len(different) > 0:
		return reason, fmt.Sprintf("lease on network %s, from DHCP server %s, now has %s%s", network, now.Server, strings.Join(different, ", "), note)
	case old.Server != now.Server:
		return reason, fmt.Sprintf("lease on network %s is from DHCP server %s now, before from %s", network, now.Server, old.Server)
	}
	return "", ""
}

// particular is something of a lease that is put to use, as people read it.
type particular struct {
	name     string
	values   []string
	resolver bool
}

// maxTold is how many values of a particular are told: a server can send hundreds.
const maxTold = 8

func (p particular) String() string {
	if len(p.values) == 0 {
		return "no " + p.name
	}
	told := p.name + " " + strings.Join(p.values[:min(len(p.values), maxTold)], " and ")
	if more := len(p.values) - maxTold; more > 0 {
		told += fmt.Sprintf(" and %d more", more)
	}
	return told
}

// particulars are those of a lease, the same for every lease and in the same order.
func particulars(l dhcp.Lease) []particular {
	var routes []string
	for _, r := range l.Routes {
		by := "on the link"
		if r.Gateway.IsValid() {
			by = "by " + r.Gateway.String()
		}
		routes = append(routes, r.Dst.String()+" "+by)
	}
	return []particular{
		{name: "address", values: given(l.Addr.Addr())},
		{name: "mask", values: []string{net.IP(ipNet(l.Addr).Mask).String()}},
		{name: "gateway", values: given(l.Gateway)},
		{name: "routes", values: routes},
		{name: "MTU", values: given(l.MTU)},
		{name: "DNS servers", values: given(l.DNS...), resolver: true},
		{name: "DNS domain", values: given(l.Domain), resolver: true},
		{name: "DNS search list", values: given(l.Search...), resolver: true},
	}
}

// given are those of some values that are not zero, as text.
func given[T comparable](values ...T) []string {
	var zero T
	var out []string
	for _, v := range values {
		if v != zero {
			out = append(out, fmt.Sprint(v))
		}
	}
	return out
}
