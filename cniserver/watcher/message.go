// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// message decodes what the guest sent to a DHCP server.
func (l *listener) message(now time.Time, payload []byte) Sighting {
	m, ok := l.decode(payload, dhcpv4.OpcodeBootRequest)
	if !ok {
		return nil
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return Discover{}
	case dhcpv4.MessageTypeRequest:
		r := request{xid: m.TransactionID, at: now, addr: asked(m), clientID: clientID(m.Options)}
		r.server, _ = option4(m.Options, dhcpv4.OptionServerIdentifier)
		l.requests.add(r)
		return Request{XID: r.xid, Addr: r.addr}
	case dhcpv4.MessageTypeDecline:
		return Decline{asked(m)}
	case dhcpv4.MessageTypeRelease:
		return Release{address(m.ClientIPAddr)}
	case dhcpv4.MessageTypeInform:
		return Inform{}
	}
	return nil
}

// reply decodes what a server sent to the guest. Only answers to its own REQUESTs
// count: anybody on the network can send a reply.
func (l *listener) reply(now time.Time, payload []byte, source net.HardwareAddr) Sighting {
	m, ok := l.decode(payload, dhcpv4.OpcodeBootReply)
	if !ok {
		return nil
	}
	server, ok := option4(m.Options, dhcpv4.OptionServerIdentifier)
	if !ok || !isHost(server) {
		return nil
	}
	r, ok := l.requests.find(now, m.TransactionID)
	if !ok || r.server.IsValid() && r.server != server {
		return nil
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeNak:
		// The guest need not believe it: an ACK to the same REQUEST may follow.
		return Nak{r.addr}
	case dhcpv4.MessageTypeAck:
		lease, ok := decodeLease(m, r)
		if !ok {
			return nil
		}
		lease.Server, lease.ServerHW, lease.HardwareAddr = server, slices.Clone(source), l.mac
		l.requests.remove(r.xid)
		return Ack{lease}
	}
	return nil
}

// decode decodes a message of the port's own client, with the options that the
// fields file and sname may hold in place of their own content (RFC 2132, 9.3).
func (l *listener) decode(payload []byte, op dhcpv4.OpcodeType) (*dhcpv4.DHCPv4, bool) {
	m, err := dhcpv4.FromBytes(payload)
	if err != nil || m.OpCode != op || !bytes.Equal(m.ClientHWAddr, l.mac) {
		return nil, false
	}
	const sname, file, end = 44, 108, 236
	overload := m.Options.Get(dhcpv4.OptionOptionOverload)
	if len(overload) == 1 && overload[0]&1 != 0 && m.Options.FromBytes(payload[file:end]) != nil {
		return nil, false
	}
	if len(overload) == 1 && overload[0]&2 != 0 && m.Options.FromBytes(payload[sname:file]) != nil {
		return nil, false
	}
	return m, true
}

// decodeLease returns what an ACK grants; false if it is no grant, as the answer to
// an INFORM, or makes no sense. A mask that the server does not name stands as 32.
func decodeLease(m *dhcpv4.DHCPv4, r request) (dhcp.Lease, bool) {
	addr := address(m.YourIPAddr)
	period := m.Options.Get(dhcpv4.OptionIPAddressLeaseTime)
	if !isHost(addr) || len(period) != 4 {
		return dhcp.Lease{}, false
	}
	bits := 32
	if mask := m.Options.Get(dhcpv4.OptionSubnetMask); mask != nil {
		var size int
		if bits, size = net.IPMask(mask).Size(); size != 32 || bits < 8 {
			return dhcp.Lease{}, false
		}
	}
	lease := dhcp.Lease{Addr: netip.PrefixFrom(addr, bits), Gateway: gateway(m.Options), ClientID: r.clientID, Acquired: wall(r.at)}
	if lease.ClientID == nil {
		lease.ClientID = append([]byte{1}, m.ClientHWAddr...) // what servers go by without one
	}
	switch s := binary.BigEndian.Uint32(period); s {
	case 0:
		return dhcp.Lease{}, false
	case math.MaxUint32: // for ever (RFC 2131, 3.3)
	default:
		lease.Expires = lease.Acquired.Add(time.Duration(s) * time.Second)
	}
	return lease, true
}

// gateway is the next hop of the default route: that of the classless routes if
// there are any (RFC 3442), else the first router.
func gateway(o dhcpv4.Options) netip.Addr {
	var routes dhcpv4.Routes
	if b := o.Get(dhcpv4.OptionClasslessStaticRoute); len(b) > 0 && routes.FromBytes(b) == nil {
		for _, r := range routes {
			if bits, _ := r.Dest.Mask.Size(); bits == 0 && isHost(address(r.Router)) {
				return address(r.Router)
			}
		}
		return netip.Addr{}
	}
	if b := o.Get(dhcpv4.OptionRouter); len(b) >= 4 && isHost(address(b[:4])) {
		return address(b[:4])
	}
	return netip.Addr{}
}

// asked is the address that a client's message is about.
func asked(m *dhcpv4.DHCPv4) netip.Addr {
	if a, ok := option4(m.Options, dhcpv4.OptionRequestedIPAddress); ok {
		return a
	}
	if a := address(m.ClientIPAddr); !a.IsUnspecified() {
		return a
	}
	return netip.Addr{}
}

// option4 is an option that holds one address.
func option4(o dhcpv4.Options, code dhcpv4.OptionCode) (netip.Addr, bool) {
	b := o.Get(code)
	return address(b), len(b) == 4
}

// clientID is option 61, or nil.
func clientID(o dhcpv4.Options) []byte {
	b := o.Get(dhcpv4.OptionClientIdentifier)
	if len(b) < 2 || len(b) > 255 {
		return nil
	}
	return slices.Clone(b)
}

// address is the zero Addr for bytes that are no address.
func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap()
}

// isHost tells whether a can be one host's address (RFC 1122, 3.2.1.3).
func isHost(a netip.Addr) bool {
	return a.Is4() && a.As4()[0] != 0 && a.As4()[0] < 224 && !a.IsLoopback()
}

// wall is t as it is written down: it means the same to another process.
func wall(t time.Time) time.Time { return t.Round(0).UTC() }
