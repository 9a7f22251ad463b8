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

// macEntry is what the pod's annotation says of an attachment without a lease.
func macEntry(mac net.HardwareAddr) podnet.Entry {
	return podnet.Entry{MAC: mac, Role: podnet.RoleSecondary, IPAMMode: podnet.IPAMTypeDHCP}
}

// lostEntry is the same when there was one.
func lostEntry(mac net.HardwareAddr) podnet.Entry {
	e := macEntry(mac)
	e.DHCP = &podnet.DHCPStatus{State: podnet.StateLost}
	return e
}

// leaseEntry is what it says with a lease, whose routes are in the pod.
func leaseEntry(mac net.HardwareAddr, lease dhcp.Lease, routes []route) podnet.Entry {
	e := macEntry(mac)
	e.Addrs = []netip.Prefix{lease.Addr}
	if lease.Gateway.IsValid() {
		e.Gateways = []netip.Addr{lease.Gateway}
	}
	for _, r := range routes {
		if r.Gateway.IsValid() && r.Dest.Bits() > 0 {
			e.Routes = append(e.Routes, podnet.Route{Dest: r.Dest, NextHop: r.Gateway})
		}
	}
	e.DHCP = &podnet.DHCPStatus{State: podnet.StateBound}
	if lease.Server.IsValid() {
		e.DHCP.Server = &lease.Server
	}
	if !lease.Expires.IsZero() {
		expires := lease.Expires.UTC().Truncate(time.Second)
		e.DHCP.Expires = &expires
	}
	return e
}

// result is the CNI result of an ADD, in the newest version.
func result(a attachment, lease dhcp.Lease, routes []route) *types100.Result {
	podInterface, mtu := 1, podMTU(a.MTU, lease.MTU)
	if a.VM != "" {
		mtu = a.MTU // the guest sees to its own
	}
	r := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: a.HostIfName},
			{Name: a.IfName, Mac: a.MAC, Mtu: mtu, Sandbox: a.Netns},
		},
		IPs: []*types100.IPConfig{{Interface: &podInterface, Address: *ipNet(lease.Addr)}},
		DNS: cni.DNS{Domain: lease.Domain, Search: lease.Search},
	}
	if a.Device != nil {
		r.Interfaces[podInterface].PciID = a.Device.PCI
	}
	if gw := lease.Gateway; gw.IsValid() {
		r.IPs[0].Gateway = gw.AsSlice()
	}
	for _, server := range lease.DNS {
		r.DNS.Nameservers = append(r.DNS.Nameservers, server.String())
	}
	for _, route := range routes {
		n := &cni.Route{Dst: *ipNet(route.Dest), Priority: a.RouteMetric}
		if route.Gateway.IsValid() {
			n.GW = route.Gateway.AsSlice()
		}
		r.Routes = append(r.Routes, n)
	}
	return r
}
