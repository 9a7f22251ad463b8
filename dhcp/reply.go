// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// question is what a client waits for an answer to.
type question struct {
	client Config // with defaults
	xid    dhcpv4.TransactionID
	// requested tells a REQUEST, for an ACK or NAK, from a DISCOVER, for an OFFER.
	requested bool
	// server is the only one whose answer counts; the zero Addr if any server's
	// does: to a DISCOVER, in INIT-REBOOT and in REBINDING.
	server netip.Addr
	// held is the address that the client has and wants to go on using; the zero
	// Prefix if it wants a new one.
	held netip.Prefix
	// moves tells that the client can change over from held to another address: it is
	// bound, and doesn't ask whether one is free before it takes it.
	moves bool
	// sent is when the REQUEST was sent.
	sent time.Time
}

// discard is why a frame is no answer, in words to count by.
type discard string

func (d discard) Error() string { return string(d) }

// notDHCP is a frame that has nothing to do with the question, such as an ARP reply.
const notDHCP = discard("not a DHCP message")

// refusal is a server's NAK.
type refusal struct {
	server netip.Addr
	text   string
}

func (r *refusal) Error() string {
	if r.text == "" {
		return fmt.Sprintf("NAK from %s", r.server)
	}
	return fmt.Sprintf("NAK from %s: %q", r.server, r.text)
}

// judge decides what one received frame means: the lease that it offers or
// grants, or else a *refusal or a discard.
//
// An OFFER has to pass the same rules as an ACK, so that a server whose leases
// are of no use is not asked for one. The ACK's address is taken even if it is
// not the offered one: it is what the server has written down, and so is that of a
// renewal, which servers should not change, but some do. But to a client in INIT-REBOOT, an
// ACK that gives another address than the one held is a refusal of that one: what was
// asked for was to confirm it (RFC 2131, 4.3.2), and a new address is to be on disk as an
// offer first, so that it can be given back whatever happens.
func (q question) judge(frame []byte) (Lease, error) {
	payload, from, ok := dhcpPayload(frame)
	if !ok {
		return Lease{}, notDHCP
	}
	m, err := decode(payload)
	switch {
	case err != nil:
		return Lease{}, discard("malformed message")
	case m.OpCode != dhcpv4.OpcodeBootReply:
		return Lease{}, discard("not a reply")
	case !bytes.Equal(m.ClientHWAddr, q.client.HardwareAddr):
		return Lease{}, discard("for another client")
	case m.TransactionID != q.xid:
		return Lease{}, discard("of another transaction")
	}
	server, ok := serverID(m)
	kind := m.MessageType()
	switch {
	case !ok:
		// RFC 2131, table 3: required in each reply.
		return Lease{}, discard("without server identifier")
	case !q.requested && kind == dhcpv4.MessageTypeOffer:
	case q.server.IsValid() && server != q.server:
		return Lease{}, discard("of another server")
	case q.requested && kind == dhcpv4.MessageTypeAck:
	case q.requested && kind == dhcpv4.MessageTypeNak:
		return Lease{}, &refusal{server: server, text: message(m)}
	default:
		return Lease{}, discard(fmt.Sprintf("of type %s, out of turn", kind))
	}
	lease, err := q.lease(m)
	if err != nil {
		return Lease{}, err
	}
	if q.held.IsValid() && lease.Addr.Addr() != q.held.Addr() && !q.moves {
		return Lease{}, &refusal{server: server, text: "granted " + lease.Addr.Addr().String() + " instead"}
	}
	lease.Server, lease.ServerHW = server, from
	return lease, nil
}

// lease returns what an OFFER or ACK holds. Options that are only of use beside
// an address are left out when they are wrong; a wrong address, mask or lease
// time spoils the whole.
func (q question) lease(m *dhcpv4.DHCPv4) (Lease, error) {
	own, _ := netip.AddrFromSlice(m.YourIPAddr)
	if !isHost(own) {
		return Lease{}, discard("with an address that can't be a host's")
	}
	length, ok := q.prefixLength(m.Options)
	if !ok {
		return Lease{}, discard("with a malformed subnet mask")
	}
	subnet := netip.PrefixFrom(own, length)
	if length < 31 && (own == subnet.Masked().Addr() || own == lastAddr(subnet)) {
		return Lease{}, discard("with its subnet's own or broadcast address")
	}
	lease := Lease{
		Addr:         subnet,
		DNS:          hosts(m.Options.Get(dhcpv4.OptionDomainNameServer)),
		Domain:       domainName(m.Options.Get(dhcpv4.OptionDomainName)),
		Search:       searchDomains(m.Options.Get(dhcpv4.OptionDNSDomainSearchList)),
		MTU:          interfaceMTU(m.Options.Get(dhcpv4.OptionInterfaceMTU)),
		HardwareAddr: q.client.HardwareAddr,
		ClientID:     q.client.ClientID,
		HostName:     q.client.HostName,
		Acquired:     q.sent.Round(0).UTC(), // without the monotonic clock, which means nothing to another process
	}
	lease.Gateway, lease.Routes = routing(m.Options, own)

	period, ok := seconds(m.Options.Get(dhcpv4.OptionIPAddressLeaseTime))
	if !ok || period == 0 {
		return Lease{}, discard("without lease time")
	}
	if period != math.MaxUint32 { // which is for ever, RFC 2131, 3.3
		t1, t2, end := timers(period, m.Options)
		lease.Renew, lease.Rebind, lease.Expires = lease.Acquired.Add(t1), lease.Acquired.Add(t2), lease.Acquired.Add(end)
	}
	return lease, nil
}

// timers returns T1, T2 and the end of a lease of the given seconds. RFC 2131,
// 4.4.5: T1 and T2 are the server's, else 1/2 and 7/8; one that leads to another
// order than T1 < T2 < end makes both the latter.
func timers(period uint32, o dhcpv4.Options) (t1, t2, end time.Duration) {
	end = time.Duration(period) * time.Second
	half, most := end/2, end/8*7
	t1, t2 = half, most
	if s, ok := seconds(o.Get(dhcpv4.OptionRenewTimeValue)); ok {
		t1 = time.Duration(s) * time.Second
	}
	if s, ok := seconds(o.Get(dhcpv4.OptionRebindingTimeValue)); ok {
		t2 = time.Duration(s) * time.Second
	}
	if t1 == 0 || t1 >= t2 || t2 >= end {
		return half, most, end
	}
	return t1, t2, end
}

// prefixLength decodes the subnet mask. Without one nothing but the address
// itself is known to be on the link: classes say nothing about subnets any more
// (RFC 4632), and with 32 all else goes by way of the gateway, which works. A lease
// that is prolonged keeps the mask that it has.
func (q question) prefixLength(o dhcpv4.Options) (int, bool) {
	b := o.Get(dhcpv4.OptionSubnetMask)
	if b == nil {
		if q.held.IsValid() {
			return q.held.Bits(), true
		}
		return 32, true
	}
	n, size := net.IPMask(b).Size()
	return n, size == 32 && n >= shortestPrefix
}

// shortestPrefix is the prefix length of the largest subnet that is believed. A
// larger one than any that was ever assigned would be a default route in disguise.
const shortestPrefix = 8

// lastAddr returns a subnet's highest address.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= bits.Reverse8(1 << (i % 8))
	}
	return netip.AddrFrom4(b)
}

func serverID(m *dhcpv4.DHCPv4) (netip.Addr, bool) {
	id := addrs(m.Options.Get(dhcpv4.OptionServerIdentifier))
	if len(id) != 1 || !isHost(id[0]) {
		return netip.Addr{}, false
	}
	return id[0], true
}

// message returns the text of a NAK, cut to what fits into an error.
func message(m *dhcpv4.DHCPv4) string {
	b := m.Options.Get(dhcpv4.OptionMessage)
	return string(b[:min(len(b), 100)])
}

// decode decodes a DHCP message, with the options that had no room in the options
// field and were put into the fields file and sname (RFC 2131, 4.1).
func decode(payload []byte) (*dhcpv4.DHCPv4, error) {
	m, err := dhcpv4.FromBytes(payload)
	if err != nil {
		return nil, err
	}
	overload := m.Options.Get(dhcpv4.OptionOptionOverload)
	if len(overload) != 1 {
		return m, nil
	}
	const inFile, inSname = 1, 2
	if overload[0]&inFile != 0 {
		err = m.Options.FromBytes(payload[108:236])
	}
	if overload[0]&inSname != 0 && err == nil {
		err = m.Options.FromBytes(payload[44:108])
	}
	return m, err
}
