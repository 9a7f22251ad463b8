// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

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

// maxReach is how many addresses the static routes of a lease may lead to: an
// eighth of all. More is a default route in disguise.
const maxReach = 1 << 29

// podRoutes are the routes of a lease that go into the pod, in the order in
// which they can be added. kept are the pod's routes by other interfaces. What
// would take their place stays out: the default route, and static routes that
// come near one, unless the attachment asks for it, and a route into what one
// of kept leads to, a default route excepted.
func podRoutes(lease *dhcp.Lease, defaultRoute bool, kept []netip.Prefix) []route {
	var routes []route
	var reach int64
	for _, r := range lease.Routes {
		routes = append(routes, route{r.Dst, r.Gateway})
		reach += 1 << (r.Dst.Addr().BitLen() - r.Dst.Bits())
	}
	if reach > maxReach && !defaultRoute {
		routes = nil
	}
	if lease.Gateway.IsValid() && defaultRoute {
		routes = append(routes, route{netip.PrefixFrom(netip.IPv4Unspecified(), 0), lease.Gateway})
	}
	var out []route
	reachable := map[netip.Addr]bool{}
	for _, r := range routes {
		if taken(r.Dest, kept) || !routable(r.Dest) {
			continue
		}
		if gw := r.Gateway; gw.IsValid() && !lease.Addr.Contains(gw) && !reachable[gw] {
			// Only with a subnet of one address is another's address on the link.
			onLink := netip.PrefixFrom(gw, gw.BitLen())
			if !lease.Addr.IsSingleIP() || taken(onLink, kept) {
				continue
			}
			reachable[gw] = true
			out = append(out, route{Dest: onLink})
		}
		out = append(out, r)
	}
	return out
}

// taken reports whether another interface has a route to all of dest.
func taken(dest netip.Prefix, kept []netip.Prefix) bool {
	return slices.ContainsFunc(kept, func(k netip.Prefix) bool {
		return k.Bits() > 0 && k.Bits() <= dest.Bits() && k.Contains(dest.Addr())
	})
}

// routable reports whether a network can be beyond a router.
func routable(dest netip.Prefix) bool {
	a := dest.Addr()
	return !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsMulticast()
}

// podMTU is the smaller of the network's MTU and the lease's, which may be 0.
func podMTU(network, lease int) int {
	if lease == 0 {
		return network
	}
	return min(network, lease)
}

// routesFor are the routes of an attachment's lease that go into the pod.
func (p *podNetns) routesFor(a attachment, lease dhcp.Lease) ([]route, error) {
	kept, err := p.otherRoutes(a.IfName)
	if err != nil {
		return nil, err
	}
	return podRoutes(&lease, a.DefaultRoute, kept), nil
}

// configure puts a lease's address and MTU, and its routes that go into the pod, on an
// attachment's interface.
func (p *podNetns) configure(a attachment, lease dhcp.Lease, routes []route) error {
	link, err := p.LinkByName(a.IfName)
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.IfName, err)
	}
	if mtu := podMTU(a.MTU, lease.MTU); link.Attrs().MTU != mtu {
		if err := p.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU %d on %s: %w", mtu, a.IfName, err)
		}
	}
	if err := p.AddrReplace(link, &netlink.Addr{IPNet: ipNet(lease.Addr)}); err != nil {
		return fmt.Errorf("set address %s on %s: %w", lease.Addr, a.IfName, err)
	}
	for _, r := range routes {
		// No other interface's route is to the same addresses, but for the
		// default route, which is to take the place of another of its metric.
		if err := p.RouteReplace(kernelRoute(link, r, a.RouteMetric)); err != nil {
			return fmt.Errorf("route to %s by %s on %s: %w", r.Dest, r.Gateway, a.IfName, err)
		}
	}
	return nil
}

// dumpTries is how often to list what changes meanwhile.
const dumpTries = 5

// removeRoutes removes those of an attachment's routes that are there.
func (p *podNetns) removeRoutes(a attachment, routes []route) error {
	link, err := p.LinkByName(a.IfName)
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.IfName, err)
	}
	for _, r := range routes {
		if err := p.RouteDel(kernelRoute(link, r, a.RouteMetric)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route to %s by %s on %s: %w", r.Dest, r.Gateway, a.IfName, err)
		}
	}
	return nil
}

func kernelRoute(link netlink.Link, r route, metric int) *netlink.Route {
	n := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(r.Dest), Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_DHCP, Priority: metric}
	if r.Gateway.IsValid() {
		n.Gw, n.Scope = r.Gateway.AsSlice(), netlink.SCOPE_UNIVERSE
	}
	return n
}

// otherRoutes are the IPv4 routes of a pod's main table that are not by ifname.
func (p *podNetns) otherRoutes(ifname string) ([]netip.Prefix, error) {
	link, err := p.LinkByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", ifname, err)
	}
	var routes []netlink.Route
	for range dumpTries {
		// The kernel tells when something changed while it listed.
		if routes, err = p.RouteList(nil, netlink.FAMILY_V4); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("routes of %s: %w", p.Path(), err)
	}
	var out []netip.Prefix
	for _, r := range routes {
		if r.LinkIndex == link.Attrs().Index || r.Dst == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			bits, _ := r.Dst.Mask.Size()
			out = append(out, netip.PrefixFrom(addr.Unmap(), bits))
		}
	}
	return out, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
