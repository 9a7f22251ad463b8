// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// follow has the interface use the lease now instead of old, which is the zero Lease if
// it has none. The new address is there before the old one goes. Routes are what the
// plugin makes of its result: if none of the old ones is there, no new one is added.
func (d *device) follow(old, now dhcp.Lease, priority int) error {
	before, after := routes(old), routes(now)
	if old.Addr == now.Addr && slices.Equal(before, after) {
		return nil
	}
	// Those of now count, too: a follow that was cut off is done again.
	there, err := d.present(slices.Concat(before, after))
	if err != nil {
		return err
	}
	if len(before) > 0 && len(there) == 0 {
		after = nil
	}
	if err := d.use(now, after, there, priority); err != nil {
		return err
	}
	if err := d.removeRoutes(slices.DeleteFunc(before, func(r dhcp.Route) bool { return slices.Contains(after, r) })); err != nil {
		return err
	}
	if !old.Addr.IsValid() || old.Addr == now.Addr {
		return nil
	}
	// Of two addresses of one subnet, the kernel may remove the second with the first,
	// and the routes with them.
	return errors.Join(d.removeAddr(old), d.use(now, after, there, priority))
}

// use puts a lease's address, and routes of it, on the interface.
func (d *device) use(lease dhcp.Lease, routes, instead []dhcp.Route, priority int) error {
	if err := d.AddrReplace(d.link, &netlink.Addr{IPNet: ipNet(lease.Addr)}); err != nil {
		return fmt.Errorf("adding address %s: %w", lease.Addr, err)
	}
	return d.addRoutes(routes, instead, priority)
}

// withdraw takes a lease off the interface, and leaves the interface up.
func (d *device) withdraw(lease dhcp.Lease) error {
	return errors.Join(d.removeRoutes(routes(lease)), d.removeAddr(lease))
}

func (d *device) removeAddr(lease dhcp.Lease) error {
	err := d.AddrDel(d.link, &netlink.Addr{IPNet: ipNet(lease.Addr)})
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("removing address %s: %w", lease.Addr, err)
	}
	return nil
}

// addRoutes adds routes, instead of those of the interface that lead to the same
// destinations. One that is there by another interface stays.
func (d *device) addRoutes(routes, instead []dhcp.Route, priority int) error {
	for _, r := range routes {
		n, set := d.route(r), d.RouteAdd
		n.Priority = priority
		if slices.ContainsFunc(instead, func(i dhcp.Route) bool { return i.Dst == r.Dst }) {
			set = d.RouteReplace
		}
		if err := set(n); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding route to %s by %s: %w", r.Dst, r.Gateway, err)
		}
	}
	return nil
}

func (d *device) removeRoutes(routes []dhcp.Route) error {
	for _, r := range slices.Backward(routes) {
		if err := d.RouteDel(d.route(r)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("removing route to %s by %s: %w", r.Dst, r.Gateway, err)
		}
	}
	return nil
}

// route is a route by this interface.
func (d *device) route(r dhcp.Route) *netlink.Route {
	n := &netlink.Route{LinkIndex: d.link.Attrs().Index, Dst: ipNet(r.Dst), Scope: netlink.SCOPE_LINK}
	if r.Gateway.IsValid() {
		n.Gw, n.Scope = r.Gateway.AsSlice(), netlink.SCOPE_UNIVERSE
	}
	return n
}

// dumpTries is how often to list what changes meanwhile.
const dumpTries = 5

// present returns those of some routes that the interface has.
func (d *device) present(routes []dhcp.Route) ([]dhcp.Route, error) {
	var have []netlink.Route
	var err error
	for range dumpTries {
		// The kernel tells when something changed while it listed.
		if have, err = d.RouteList(d.link, netlink.FAMILY_V4); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	var out []dhcp.Route
	for _, r := range routes {
		wanted := d.route(r)
		if slices.ContainsFunc(have, func(h netlink.Route) bool {
			return h.Dst != nil && h.Dst.String() == wanted.Dst.String() && h.Gw.Equal(wanted.Gw)
		}) {
			out = append(out, r)
		}
	}
	return out, nil
}
