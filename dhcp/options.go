// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

// optionClasslessRoutesMS is Microsoft's private number for option 121.
const optionClasslessRoutesMS = dhcpv4.GenericOptionCode(249)

// isHost tells whether a can be one host's address: not of "this network", the
// local host, a group or all hosts (RFC 1122, 3.2.1.3).
func isHost(a netip.Addr) bool {
	return a.Is4() && a.As4()[0] != 0 && !a.IsLoopback() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// addrs returns an option's addresses; none if it is malformed.
func addrs(b []byte) []netip.Addr {
	if len(b)%4 != 0 {
		return nil
	}
	var out []netip.Addr
	for ; len(b) > 0; b = b[4:] {
		out = append(out, netip.AddrFrom4([4]byte(b)))
	}
	return out
}

// hosts returns those of an option's addresses that can be a host's.
func hosts(b []byte) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs(b) {
		if isHost(a) {
			out = append(out, a)
		}
	}
	return out
}

// seconds returns an option's time in seconds; false if it is absent or malformed.
func seconds(b []byte) (uint32, bool) {
	if len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// routing returns the default route's next hop and the static routes of a client
// with the address own. By RFC 3442 a classless option takes the place of the
// router and static route options; one that is malformed is as if it had not
// been sent. Routes by way of what can't be a router are left out.
func routing(o dhcpv4.Options, own netip.Addr) (gateway netip.Addr, routes []Route) {
	all, ok := classlessRoutes(o.Get(dhcpv4.OptionClasslessStaticRoute))
	if !ok {
		all, ok = classlessRoutes(o.Get(optionClasslessRoutesMS))
	}
	if !ok {
		for _, router := range addrs(o.Get(dhcpv4.OptionRouter)) {
			all = append(all, Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gateway: router})
		}
		all = append(all, classfulRoutes(o.Get(dhcpv4.OptionStaticRoutingTable))...)
	}
	for _, r := range all {
		onLink := r.Gateway == netip.IPv4Unspecified() // RFC 3442, "local subnet routes"
		switch {
		case !onLink && (!isHost(r.Gateway) || r.Gateway == own):
		case r.Dst.Bits() > 0 && onLink:
			routes = append(routes, Route{Dst: r.Dst})
		case r.Dst.Bits() > 0:
			routes = append(routes, r)
		case !onLink && !gateway.IsValid():
			gateway = r.Gateway // the first one is preferred, RFC 2132, 3.5
		}
	}
	return gateway, routes
}

// classlessRoutes decodes option 121 (RFC 3442); false if it is absent or malformed.
func classlessRoutes(b []byte) ([]Route, bool) {
	var decoded dhcpv4.Routes
	if len(b) == 0 || decoded.FromBytes(b) != nil {
		return nil, false
	}
	var out []Route
	for _, r := range decoded {
		bits, _ := r.Dest.Mask.Size()
		dst := netip.PrefixFrom(netip.AddrFrom4([4]byte(r.Dest.IP)), bits).Masked()
		out = append(out, Route{Dst: dst, Gateway: netip.AddrFrom4([4]byte(r.Router))})
	}
	return out, true
}

// classfulRoutes decodes option 33 (RFC 2132, 5.8): pairs of destination and
// router. A destination is a network of its address class, or a host if it has
// bits beyond that.
func classfulRoutes(b []byte) []Route {
	if len(b)%8 != 0 {
		return nil
	}
	var out []Route
	for pairs := addrs(b); len(pairs) > 0; pairs = pairs[2:] {
		dst, bits := pairs[0], 24
		switch first := dst.As4()[0]; {
		case !isHost(dst): // the default route is not to be given here
			continue
		case first < 128:
			bits = 8
		case first < 192:
			bits = 16
		}
		network := netip.PrefixFrom(dst, bits).Masked()
		if network.Addr() != dst {
			network = netip.PrefixFrom(dst, 32)
		}
		out = append(out, Route{Dst: network, Gateway: pairs[1]})
	}
	return out
}

// searchDomains decodes option 119 (RFC 3397) and leaves out what is no name.
func searchDomains(b []byte) []string {
	labels, err := rfc1035label.FromBytes(b)
	if err != nil {
		return nil
	}
	var out []string
	for _, name := range labels.Labels {
		if validName(name) {
			out = append(out, name)
		}
	}
	return out
}

// domainName decodes option 15. Some servers end it with a NUL, some with a dot.
func domainName(b []byte) string {
	name := strings.TrimSuffix(strings.TrimRight(string(b), "\x00"), ".")
	if !validName(name) {
		return ""
	}
	return name
}

// validName tells whether s is a domain name that is safe in a file or a log: labels of
// letters, digits, hyphens and underscores (RFC 1123, 2.1; RFC 8552).
func validName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// interfaceMTU decodes option 26. Less than what every IPv4 host has to take
// (RFC 791) is an error or an attack, and is as if it had not been sent.
func interfaceMTU(b []byte) int {
	if len(b) != 2 || binary.BigEndian.Uint16(b) < 576 {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}
