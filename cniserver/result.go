// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"net"
	"net/netip"
	"time"

	cni "github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// entry is what the pod's annotation says of an attachment: its MAC address
// only while it holds no lease.
func entry(mac net.HardwareAddr, lease *dhcp.Lease) podnet.Entry {
	e := podnet.Entry{MAC: mac, Role: podnet.RoleSecondary, IPAMMode: podnet.IPAMTypeDHCP}
	if lease == nil {
		return e
	}
	e.Addrs = []netip.Prefix{lease.Addr}
	if lease.Gateway.IsValid() {
		e.Gateways = []netip.Addr{lease.Gateway}
	}
	for _, r := range lease.Routes {
		if r.Gateway.IsValid() && r.Dst.Bits() > 0 {
			e.Routes = append(e.Routes, podnet.Route{Dest: r.Dst, NextHop: r.Gateway})
		}
	}
	e.DHCP = &podnet.DHCPStatus{State: podnet.StateBound, Server: &lease.Server}
	if !lease.Expires.IsZero() {
		expires := lease.Expires.UTC().Truncate(time.Second)
		e.DHCP.Expires = &expires
	}
	return e
}

// result is the CNI result of an ADD, in the newest version.
func result(a *adding) *types100.Result {
	podInterface := 1
	r := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: a.HostIfName},
			{Name: a.IfName, Mac: a.MAC, Mtu: podMTU(a.conf.MTU, a.Lease.MTU), Sandbox: a.Netns},
		},
		IPs: []*types100.IPConfig{{Interface: &podInterface, Address: *ipNet(a.Lease.Addr)}},
		DNS: cni.DNS{Domain: a.Lease.Domain, Search: a.Lease.Search},
	}
	if gw := a.Lease.Gateway; gw.IsValid() {
		r.IPs[0].Gateway = gw.AsSlice()
	}
	for _, server := range a.Lease.DNS {
		r.DNS.Nameservers = append(r.DNS.Nameservers, server.String())
	}
	for _, route := range a.routes {
		n := &cni.Route{Dst: *ipNet(route.Dest)}
		if route.Gateway.IsValid() {
			n.GW = route.Gateway.AsSlice()
		}
		r.Routes = append(r.Routes, n)
	}
	return r
}
