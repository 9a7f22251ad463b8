// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Annotation is the key of the pod annotation that says what addresses each
// network gave the pod. It is the one contract between node daemon and
// controller.
const Annotation = "k8s.ovn.org/pod-networks"

// States of an address that a DHCP server leased.
const (
	StateOpen  = "open"
	StateBound = "bound"
	StateLost  = "lost"
)

// Networks is the value of Annotation: an object with one entry per NAD key.
// It keeps the entries and the fields that it does not know. The zero value is
// an annotation that is not set. Values are immutable.
type Networks struct {
	entries map[string]json.RawMessage
}

// Entry is what an annotation says about one attachment on a DHCP network.
type Entry struct {
	// MAC is always set.
	MAC net.HardwareAddr
	// Addrs are the pod's addresses with the length of their subnet, none
	// while none is known.
	Addrs    []netip.Prefix
	Gateways []netip.Addr
	Routes   []Route
	Role     string
	// IPAMMode is "dhcp" for networks of this product.
	IPAMMode string
	// DHCP is nil in entries that another program wrote.
	DHCP *DHCPStatus
}

// Route is a route of an attachment. A default route is a gateway, never a
// Route.
type Route struct {
	Dest    netip.Prefix `json:"dest"`
	NextHop netip.Addr   `json:"nextHop"`
}

// DHCPStatus says how the address of an entry stands with its DHCP server.
type DHCPStatus struct {
	State string `json:"state"`
	// Expires is nil for a lease without end.
	Expires *time.Time  `json:"expires,omitempty"`
	Server  *netip.Addr `json:"server,omitempty"`
}

// wireEntry is an entry as JSON has it. ip_address and gateway_ip are from
// before dual-stack; they are written when there is exactly one.
type wireEntry struct {
	IPs      []string    `json:"ip_addresses"`
	MAC      string      `json:"mac_address"`
	Gateways []string    `json:"gateway_ips,omitempty"`
	Routes   []Route     `json:"routes,omitempty"`
	IP       string      `json:"ip_address,omitempty"`
	Gateway  string      `json:"gateway_ip,omitempty"`
	Role     string      `json:"role,omitempty"`
	IPAMMode string      `json:"ipam_mode,omitempty"`
	DHCP     *DHCPStatus `json:"dhcp,omitempty"`
}

// ParseNetworks parses the value of Annotation; "" is one that is not set.
// Entries are parsed when they are asked for, so a broken one costs no other.
func ParseNetworks(value string) (Networks, error) {
	var n Networks
	if value == "" {
		return n, nil
	}
	if err := json.Unmarshal([]byte(value), &n.entries); err != nil {
		return n, fmt.Errorf("annotation %s is not a JSON object: %w", Annotation, err)
	}
	return n, nil
}

// String is the value for the annotation, with the keys sorted.
func (n Networks) String() string {
	if len(n.entries) == 0 {
		return "{}"
	}
	// A map of raw JSON values that were themselves parsed or marshalled
	// can't fail to marshal.
	out, _ := json.Marshal(n.entries)
	return string(out)
}

// Keys are the NAD keys of all entries, sorted.
func (n Networks) Keys() []string {
	return slices.Sorted(maps.Keys(n.entries))
}

// Entry is the entry of a NAD key; ok is false when there is none.
func (n Networks) Entry(key string) (entry Entry, ok bool, err error) {
	raw, ok := n.entries[key]
	if !ok {
		return Entry{}, false, nil
	}
	entry, err = parseEntry(raw)
	if err != nil {
		return Entry{}, true, fmt.Errorf("annotation %s: entry %q: %w", Annotation, key, err)
	}
	return entry, true, nil
}

func parseEntry(raw json.RawMessage) (Entry, error) {
	var w wireEntry
	if err := json.Unmarshal(raw, &w); err != nil {
		return Entry{}, err
	}
	e := Entry{Routes: w.Routes, Role: w.Role, IPAMMode: w.IPAMMode, DHCP: w.DHCP}
	var err error
	if e.MAC, err = ParseMAC(w.MAC); err != nil {
		return Entry{}, fmt.Errorf("field mac_address: %w", err)
	}
	if len(w.IPs) == 0 && w.IP != "" {
		w.IPs = []string{w.IP}
	}
	for _, s := range w.IPs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return Entry{}, fmt.Errorf("field ip_addresses: %w", err)
		}
		if a := p.Addr(); !a.Is4() || !usable(a) {
			return Entry{}, fmt.Errorf("field ip_addresses: %q: not an IPv4 address that a pod can have", s)
		}
		e.Addrs = append(e.Addrs, p)
	}
	if len(w.Gateways) == 0 && w.Gateway != "" {
		w.Gateways = []string{w.Gateway}
	}
	for _, s := range w.Gateways {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return Entry{}, fmt.Errorf("field gateway_ips: %w", err)
		}
		e.Gateways = append(e.Gateways, a)
	}
	return e, nil
}

func usable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// With returns n with the entry of a NAD key set. Fields of an existing entry
// that Entry doesn't know are kept.
func (n Networks) With(key string, entry Entry) (Networks, error) {
	fields := map[string]json.RawMessage{}
	if raw, ok := n.entries[key]; ok {
		// An entry that is not an object has no fields worth keeping.
		if json.Unmarshal(raw, &fields) != nil || fields == nil {
			fields = map[string]json.RawMessage{}
		}
	}
	for _, known := range []string{"ip_addresses", "mac_address", "gateway_ips", "routes", "ip_address", "gateway_ip", "role", "ipam_mode", "dhcp"} {
		delete(fields, known)
	}
	encoded, err := json.Marshal(entry.wire())
	if err != nil {
		return n, fmt.Errorf("annotation %s: entry %q: %w", Annotation, key, err)
	}
	// The new fields are laid over the kept ones.
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return n, fmt.Errorf("annotation %s: entry %q: %w", Annotation, key, err)
	}
	merged, err := json.Marshal(fields)
	if err != nil {
		return n, fmt.Errorf("annotation %s: entry %q: %w", Annotation, key, err)
	}
	out := Networks{entries: maps.Clone(n.entries)}
	if out.entries == nil {
		out.entries = map[string]json.RawMessage{}
	}
	out.entries[key] = merged
	return out, nil
}

// Without returns n without the entry of a NAD key.
func (n Networks) Without(key string) Networks {
	out := Networks{entries: maps.Clone(n.entries)}
	delete(out.entries, key)
	return out
}

func (e *Entry) wire() wireEntry {
	w := wireEntry{MAC: e.MAC.String(), Routes: e.Routes, Role: e.Role, IPAMMode: e.IPAMMode, DHCP: e.DHCP}
	for _, p := range e.Addrs {
		w.IPs = append(w.IPs, p.String())
	}
	for _, a := range e.Gateways {
		w.Gateways = append(w.Gateways, a.String())
	}
	if len(w.IPs) == 1 {
		w.IP = w.IPs[0]
	}
	if len(w.Gateways) == 1 {
		w.Gateway = w.Gateways[0]
	}
	return w
}
