// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// route is a route that a lease puts into a pod. A Gateway that is not valid
// means that Dest is on the link.
type route struct {
	Dest    netip.Prefix
	Gateway netip.Addr
}

// isDefault holds for a default route, and for one that covers half of all
// addresses: two of those are a default route in disguise.
func (r route) isDefault() bool { return r.Dest.Bits() <= 1 }

var anywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// podRoutes are the routes of a lease that go into the pod, in the order in
// which they can be added. A default route is among them only if the attachment
// asks for it, since it would take the place of the pod's own.
func podRoutes(lease *dhcp.Lease, defaultRoute bool) []route {
	routes := []route{}
	for _, r := range lease.Routes {
		routes = append(routes, route{r.Dst, r.Gateway})
	}
	if lease.Gateway.IsValid() {
		routes = append(routes, route{anywhere, lease.Gateway})
	}
	var out []route
	reachable := map[netip.Addr]bool{}
	for _, r := range routes {
		if r.isDefault() && !defaultRoute {
			continue
		}
		if gw := r.Gateway; gw.IsValid() && !lease.Addr.Contains(gw) && !reachable[gw] {
			// A next hop outside of the subnet is on the link all the same.
			reachable[gw] = true
			out = append(out, route{Dest: netip.PrefixFrom(gw, gw.BitLen())})
		}
		out = append(out, r)
	}
	return out
}

// podMTU is the smaller of the network's MTU and the lease's, which may be 0.
func podMTU(network, lease int) int {
	if lease == 0 {
		return network
	}
	return min(network, lease)
}

// configure puts a lease's address, MTU and routes on a pod's interface.
func configure(pod *podNetns, ifname string, addr netip.Prefix, mtu int, routes []route) error {
	link, err := pod.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("interface %s: %w", ifname, err)
	}
	if link.Attrs().MTU != mtu {
		if err := pod.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU %d on %s: %w", mtu, ifname, err)
		}
	}
	if err := pod.AddrReplace(link, &netlink.Addr{IPNet: ipNet(addr)}); err != nil {
		return fmt.Errorf("set address %s on %s: %w", addr, ifname, err)
	}
	for _, r := range routes {
		n := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.Dest), Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_DHCP}
		if r.Gateway.IsValid() {
			n.Gw, n.Scope = r.Gateway.AsSlice(), netlink.SCOPE_UNIVERSE
		}
		if err := pod.RouteReplace(n); err != nil {
			return fmt.Errorf("route to %s by %s on %s: %w", r.Dest, r.Gateway, ifname, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
