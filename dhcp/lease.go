// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package dhcp is a DHCP client (RFC 2131). Acquire gets an IPv4 lease from the server
// of a link, and Release gives it back. A Keeper keeps many leases, over its own end
// and the next start.
//
// It speaks in whole Ethernet frames through a packet socket, so that it depends
// on nothing that is, or is not yet, configured on the interface, and changes
// nothing there: putting a lease's address and routes to use is the caller's job.
package dhcp

import (
	"encoding/hex"
	"encoding/json"
	"net"
	"net/netip"
	"time"
)

// Lease is what a server granted and what is needed to use it, to prolong it and
// to give it back, in this process or, by way of JSON, in a later one. All its
// values come from the server, an untrusted source, and have passed this
// package's rules. A Lease is a plain value; its slices are not to be modified.
type Lease struct {
	// Addr is the leased address with its subnet's prefix length: 32 if the
	// server named no mask.
	Addr netip.Prefix `json:"addr"`
	// Gateway is the default route's next hop; the zero Addr if there is none.
	// It may lie outside Addr, and is on the link all the same.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Routes are the static routes beside the default route, which is never
	// among them.
	Routes []Route `json:"routes,omitempty"`
	// DNS, Domain and Search are the resolver's configuration (options 6, 15
	// and 119). The names are syntactically valid, without a trailing dot.
	DNS    []netip.Addr `json:"dns,omitempty"`
	Domain string       `json:"domain,omitempty"`
	Search []string     `json:"search,omitempty"`
	// MTU is option 26, in bytes; 0 if the server did not say.
	MTU int `json:"mtu,omitempty"`

	// Server is the server's identifier (option 54): its address, which can be
	// on another subnet.
	Server netip.Addr `json:"server"`
	// ServerHW is the link-layer source of the server's ACK: the server itself,
	// or the relay or router that it is reached by.
	ServerHW net.HardwareAddr `json:"server_hw,omitempty"`

	// HardwareAddr, ClientID and HostName are the client's side, as it was sent
	// to the server: the lease is theirs. HostName may be empty.
	HardwareAddr net.HardwareAddr `json:"hardware_addr"`
	ClientID     []byte           `json:"client_id"`
	HostName     string           `json:"host_name,omitempty"`

	// Acquired is when the request that was granted was sent: by RFC 2131,
	// 4.4.1, the lease's times count from then. All four are UTC wall clock;
	// the last three are the zero Time for a lease that does not end.
	Acquired time.Time `json:"acquired"`
	// Renew and Rebind are the times T1 and T2 of RFC 2131, 4.4.5:
	// Acquired < Renew < Rebind < Expires.
	Renew   time.Time `json:"renew,omitzero"`
	Rebind  time.Time `json:"rebind,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
}

// since returns the lease with times that count from t.
func (l Lease) since(t time.Time) Lease {
	d := t.Sub(l.Acquired)
	l.Acquired = l.Acquired.Add(d)
	if !l.Expires.IsZero() {
		l.Renew, l.Rebind, l.Expires = l.Renew.Add(d), l.Rebind.Add(d), l.Expires.Add(d)
	}
	return l
}

// Route is a static route of a lease. The zero Gateway means that Dst is on the
// link itself.
type Route struct {
	Dst     netip.Prefix `json:"dst"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// plainLease is a Lease without methods, and leaseText what covers those of its
// fields that JSON is to show as people write them, not as base64.
type (
	plainLease Lease
	leaseText  struct {
		plainLease
		ServerHW     string `json:"server_hw,omitempty"`
		HardwareAddr string `json:"hardware_addr"`
		ClientID     string `json:"client_id"`
	}
)

// MarshalJSON implements json.Marshaler.
func (l Lease) MarshalJSON() ([]byte, error) {
	return json.Marshal(leaseText{
		plainLease:   plainLease(l),
		ServerHW:     l.ServerHW.String(),
		HardwareAddr: l.HardwareAddr.String(),
		ClientID:     hex.EncodeToString(l.ClientID),
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Lease) UnmarshalJSON(b []byte) error {
	var t leaseText
	err := json.Unmarshal(b, &t)
	if err != nil {
		return err
	}
	out := Lease(t.plainLease)
	if t.ServerHW != "" {
		if out.ServerHW, err = net.ParseMAC(t.ServerHW); err != nil {
			return err
		}
	}
	if out.HardwareAddr, err = net.ParseMAC(t.HardwareAddr); err != nil {
		return err
	}
	if out.ClientID, err = hex.DecodeString(t.ClientID); err != nil {
		return err
	}
	*l = out
	return nil
}
