// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// fill puts a lease into the result. The version stays the caller's.
func fill(result *types100.Result, lease dhcp.Lease, priority int) {
	ip := &types100.IPConfig{Address: *ipNet(lease.Addr)}
	if lease.Gateway.IsValid() {
		ip.Gateway = lease.Gateway.AsSlice()
	}
	result.IPs = []*types100.IPConfig{ip}
	result.Routes = nil
	for _, r := range routes(lease) {
		result.Routes = append(result.Routes, cniRoute(r, priority))
	}
	result.DNS = types.DNS{Domain: lease.Domain, Search: lease.Search}
	for _, server := range lease.DNS {
		result.DNS.Nameservers = append(result.DNS.Nameservers, server.String())
	}
}

// routes are all routes of a lease, in the order in which they can be added: the
// static ones, and the default route. With a subnet of one address, what a route goes
// by has to be made known as being on the link.
func routes(lease dhcp.Lease) []dhcp.Route {
	all := lease.Routes
	if lease.Gateway.IsValid() {
		all = append(all[:len(all):len(all)], dhcp.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: lease.Gateway})
	}
	var out []dhcp.Route
	onLink := map[netip.Addr]bool{}
	for _, r := range all {
		if lease.Addr.IsSingleIP() && r.Gateway.IsValid() && !onLink[r.Gateway] {
			onLink[r.Gateway] = true
			out = append(out, dhcp.Route{Dst: netip.PrefixFrom(r.Gateway, r.Gateway.BitLen())})
		}
		out = append(out, r)
	}
	return out
}

// cniRoute is a route as plugins take it. A route without a gateway would get that of
// the address; one on the link has 0.0.0.0, and says so.
func cniRoute(r dhcp.Route, priority int) *types.Route {
	if r.Gateway.IsValid() {
		return &types.Route{Dst: *ipNet(r.Dst), GW: r.Gateway.AsSlice(), Priority: priority}
	}
	scope := int(unix.RT_SCOPE_LINK)
	return &types.Route{Dst: *ipNet(r.Dst), GW: net.IPv4zero.To4(), Priority: priority, Scope: &scope}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
