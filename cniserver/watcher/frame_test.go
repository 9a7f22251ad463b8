// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

func serverMAC() []byte { return []byte{2, 0, 0, 0, 0, 0xaa} }

// ether is an Ethernet frame.
func ether(src []byte, etherType uint16, payload []byte) []byte {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, src...)
	return append(binary.BigEndian.AppendUint16(b, etherType), payload...)
}

// udp is a frame with a datagram.
func udp(src []byte, from, to uint16, payload []byte) []byte {
	be := binary.BigEndian
	ip := append([]byte{0x45, 0}, be.AppendUint16(nil, uint16(ipv4Len+udpLen+len(payload)))...)
	ip = append(ip, 0, 0, 0x40, 0, 64, unix.IPPROTO_UDP, 0, 0, 192, 0, 2, 2, 255, 255, 255, 255)
	ip = be.AppendUint16(be.AppendUint16(ip, from), to)
	ip = append(be.AppendUint16(ip, uint16(udpLen+len(payload))), 0, 0)
	return ether(src, unix.ETH_P_IP, append(ip, payload...))
}

// arpFrame is an ARP request in which hw says that it has the address sender.
func arpFrame(src, hw []byte, sender, target string) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(append(b, hw...), addr(sender).AsSlice()...)
	b = append(append(b, 0, 0, 0, 0, 0, 0), addr(target).AsSlice()...)
	return ether(src, unix.ETH_P_ARP, b)
}

// message is a DHCP message of, or to, the guest.
func message(op dhcpv4.OpcodeType, kind dhcpv4.MessageType, xid byte, change ...func(*dhcpv4.DHCPv4)) []byte {
	m := &dhcpv4.DHCPv4{
		OpCode: op, HWType: 1, ClientHWAddr: guestMAC(), TransactionID: [4]byte{xid},
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, GatewayIPAddr: net.IPv4zero,
		Options: dhcpv4.Options{},
	}
	m.UpdateOption(dhcpv4.OptMessageType(kind))
	for _, c := range change {
		c(m)
	}
	return m.ToBytes()
}

func toServer(kind dhcpv4.MessageType, xid byte, change ...func(*dhcpv4.DHCPv4)) []byte {
	return udp(guestMAC(), 68, 67, message(dhcpv4.OpcodeBootRequest, kind, xid, change...))
}

// fromServer is a reply that grants 192.0.2.10 for an hour, unless changed.
func fromServer(kind dhcpv4.MessageType, xid byte, change ...func(*dhcpv4.DHCPv4)) []byte {
	grant := func(m *dhcpv4.DHCPv4) {
		m.YourIPAddr = net.IP{192, 0, 2, 10}
		option(dhcpv4.OptionServerIdentifier, 192, 0, 2, 2)(m)
		option(dhcpv4.OptionIPAddressLeaseTime, 0, 0, 0x0e, 0x10)(m)
		option(dhcpv4.OptionSubnetMask, 255, 255, 255, 0)(m)
		option(dhcpv4.OptionRouter, 192, 0, 2, 1, 192, 0, 2, 9)(m)
	}
	return udp(serverMAC(), 67, 68, message(dhcpv4.OpcodeBootReply, kind, xid, append([]func(*dhcpv4.DHCPv4){grant}, change...)...))
}

func option(code dhcpv4.OptionCode, value ...byte) func(*dhcpv4.DHCPv4) {
	return func(m *dhcpv4.DHCPv4) { m.Options[code.Code()] = value }
}

func without(code dhcpv4.OptionCode) func(*dhcpv4.DHCPv4) {
	return func(m *dhcpv4.DHCPv4) { delete(m.Options, code.Code()) }
}

func TestHearGuest(t *testing.T) {
	other := []byte{2, 0, 0, 0, 0, 9}
	request := toServer(dhcpv4.MessageTypeRequest, 7, option(dhcpv4.OptionRequestedIPAddress, 192, 0, 2, 10))
	fragment := slices.Clone(request)
	fragment[20] = 0x20
	for _, c := range []struct {
		name  string
		frame []byte
		want  Sighting
	}{
		{"DISCOVER", toServer(dhcpv4.MessageTypeDiscover, 7), Discover{}},
		{"REQUEST", request, Request{[4]byte{7}, addr("192.0.2.10")}},
		{"renewal", toServer(dhcpv4.MessageTypeRequest, 7, func(m *dhcpv4.DHCPv4) { m.ClientIPAddr = net.IP{192, 0, 2, 10} }), Request{[4]byte{7}, addr("192.0.2.10")}},
		{"REQUEST of nothing", toServer(dhcpv4.MessageTypeRequest, 7), Request{XID: [4]byte{7}}},
		{"DECLINE", toServer(dhcpv4.MessageTypeDecline, 7, option(dhcpv4.OptionRequestedIPAddress, 192, 0, 2, 10)), Decline{addr("192.0.2.10")}},
		{"RELEASE", toServer(dhcpv4.MessageTypeRelease, 7, func(m *dhcpv4.DHCPv4) { m.ClientIPAddr = net.IP{192, 0, 2, 10} }), Release{addr("192.0.2.10")}},
		{"INFORM", toServer(dhcpv4.MessageTypeInform, 7), Inform{}},
		{"no DHCP", udp(guestMAC(), 68, 67, []byte("hello")), nil},
		{"for another client", toServer(dhcpv4.MessageTypeDiscover, 7, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = other }), nil},
		{"reply to a server", udp(guestMAC(), 68, 67, message(dhcpv4.OpcodeBootReply, dhcpv4.MessageTypeAck, 7)), nil},
		{"OFFER", udp(guestMAC(), 67, 68, message(dhcpv4.OpcodeBootReply, dhcpv4.MessageTypeOffer, 7)), ServerTraffic{}},
		{"ACK", udp(guestMAC(), 67, 68, message(dhcpv4.OpcodeBootReply, dhcpv4.MessageTypeAck, 7)), ServerTraffic{}},
		{"server's nonsense", udp(guestMAC(), 67, 68, nil), ServerTraffic{}},
		{"foreign DISCOVER", udp(other, 68, 67, message(dhcpv4.OpcodeBootRequest, dhcpv4.MessageTypeDiscover, 7)), ForeignMAC{other}},
		{"ARP", arpFrame(guestMAC(), guestMAC(), "192.0.2.10", "192.0.2.1"), ARP{Sender: addr("192.0.2.10")}},
		{"announcement", arpFrame(guestMAC(), guestMAC(), "192.0.2.10", "192.0.2.10"), ARP{Sender: addr("192.0.2.10"), Gratuitous: true}},
		{"probe", arpFrame(guestMAC(), guestMAC(), "0.0.0.0", "192.0.2.10"), ARP{Sender: addr("0.0.0.0")}},
		{"foreign IPv6 for a group", append([]byte{0x33, 0x33, 0, 0, 0, 0x16}, ether(other, unix.ETH_P_IPV6, make([]byte, 60))[6:]...), nil},
		{"ARP of another", arpFrame(guestMAC(), other, "192.0.2.10", "192.0.2.1"), ForeignMAC{other}},
		{"ARP from another", arpFrame(other, guestMAC(), "192.0.2.10", "192.0.2.1"), ForeignMAC{other}},
		{"short ARP", arpFrame(guestMAC(), guestMAC(), "192.0.2.10", "192.0.2.1")[:40], nil},
		{"ARP of Token Ring", ether(guestMAC(), unix.ETH_P_ARP, append([]byte{0, 6, 8, 0, 6, 4}, make([]byte, 22)...)), nil},
		{"RARP", ether(guestMAC(), unix.ETH_P_RARP, nil), RARP{}},
		{"fragment", fragment, nil},
		{"cut", request[:len(request)-1], nil},
		{"padded", append(slices.Clone(request), 0, 0), Request{[4]byte{7}, addr("192.0.2.10")}},
		{"nothing", nil, nil},
	} {
		l := listener{mac: guestMAC()}
		if diff := cmp.Diff(c.want, l.hear(start(), c.frame, false), compareAddrs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if c.want == nil && len(l.requests) > 0 {
			t.Errorf("%s: is remembered", c.name)
		}
	}
}

func TestHearServer(t *testing.T) {
	granted := func(change ...func(*dhcp.Lease)) Sighting {
		lease := dhcp.Lease{
			Addr: netip.MustParsePrefix("192.0.2.10/24"), Gateway: addr("192.0.2.1"), Server: addr("192.0.2.2"),
			ServerHW: serverMAC(), HardwareAddr: guestMAC(), ClientID: append([]byte{1}, guestMAC()...),
			Acquired: start(), Expires: start().Add(time.Hour),
		}
		for _, c := range change {
			c(&lease)
		}
		return Ack{lease}
	}
	const ack, nak = dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak
	request := toServer(dhcpv4.MessageTypeRequest, 7, option(dhcpv4.OptionRequestedIPAddress, 192, 0, 2, 10))
	// After the options comes what a message is overloaded with.
	overloaded := fromServer(ack, 7, without(dhcpv4.OptionSubnetMask), option(dhcpv4.OptionOptionOverload, 1))
	copy(overloaded[etherLen+ipv4Len+udpLen+108:], []byte{1, 4, 255, 255, 255, 0, 255})
	for _, c := range []struct {
		name           string
		request, reply []byte
		after          time.Duration
		want           Sighting
	}{
		{"ACK", request, fromServer(ack, 7), time.Second, granted()},
		{"ACK, late", request, fromServer(ack, 7), requestAge, nil},
		{"ACK to nobody", nil, fromServer(ack, 7), 0, nil},
		{"ACK to a DISCOVER", toServer(dhcpv4.MessageTypeDiscover, 7), fromServer(ack, 7), 0, nil},
		{"ACK to an INFORM", toServer(dhcpv4.MessageTypeInform, 7), fromServer(ack, 7), 0, nil},
		{"ACK of another transaction", request, fromServer(ack, 8), 0, nil},
		{"ACK for another client", request, fromServer(ack, 7, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = serverMAC() }), 0, nil},
		{"ACK from a client's port", request, udp(serverMAC(), 68, 68, message(dhcpv4.OpcodeBootReply, ack, 7)), 0, nil},
		{"ACK without server", request, fromServer(ack, 7, without(dhcpv4.OptionServerIdentifier)), 0, nil},
		{"ACK without time", request, fromServer(ack, 7, without(dhcpv4.OptionIPAddressLeaseTime)), 0, nil},
		{"ACK for no time", request, fromServer(ack, 7, option(dhcpv4.OptionIPAddressLeaseTime, 0, 0, 0, 0)), 0, nil},
		{"ACK without address", request, fromServer(ack, 7, func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IPv4zero }), 0, nil},
		{"ACK of a group", request, fromServer(ack, 7, func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IP{224, 0, 0, 1} }), 0, nil},
		{"ACK with a wrong mask", request, fromServer(ack, 7, option(dhcpv4.OptionSubnetMask, 255, 0, 255, 0)), 0, nil},
		{"ACK with half a mask", request, fromServer(ack, 7, option(dhcpv4.OptionSubnetMask, 255, 0)), 0, nil},
		{"ACK with everything on the link", request, fromServer(ack, 7, option(dhcpv4.OptionSubnetMask, 0, 0, 0, 0)), 0, nil},
		{"ACK without mask", request, fromServer(ack, 7, without(dhcpv4.OptionSubnetMask)), 0, granted(func(l *dhcp.Lease) { l.Addr = netip.PrefixFrom(l.Addr.Addr(), 32) })},
		{"ACK with the mask elsewhere", request, overloaded, 0, granted()},
		{"ACK without router", request, fromServer(ack, 7, without(dhcpv4.OptionRouter)), 0, granted(func(l *dhcp.Lease) { l.Gateway = netip.Addr{} })},
		{"ACK with routes", request, fromServer(ack, 7, option(dhcpv4.OptionClasslessStaticRoute, 8, 10, 192, 0, 2, 8, 0, 192, 0, 2, 7)), 0, granted(func(l *dhcp.Lease) { l.Gateway = addr("192.0.2.7") })},
		{"ACK with broken routes", request, fromServer(ack, 7, option(dhcpv4.OptionClasslessStaticRoute, 99, 10)), 0, granted()},
		{"ACK for ever", request, fromServer(ack, 7, option(dhcpv4.OptionIPAddressLeaseTime, 255, 255, 255, 255)), 0, granted(func(l *dhcp.Lease) { l.Expires = time.Time{} })},
		{"ACK of another server", toServer(dhcpv4.MessageTypeRequest, 7, option(dhcpv4.OptionServerIdentifier, 192, 0, 2, 3)), fromServer(ack, 7), 0, nil},
		{"ACK to a DUID", toServer(dhcpv4.MessageTypeRequest, 7, option(dhcpv4.OptionClientIdentifier, 255, 1, 2, 3)), fromServer(ack, 7), 0, granted(func(l *dhcp.Lease) { l.ClientID = []byte{255, 1, 2, 3} })},
		{"NAK", request, fromServer(nak, 7), 0, Nak{addr("192.0.2.10")}},
		{"NAK of another transaction", request, fromServer(nak, 8), 0, nil},
		{"OFFER", request, fromServer(dhcpv4.MessageTypeOffer, 7), 0, nil},
	} {
		l := listener{mac: guestMAC()}
		l.hear(start(), c.request, false)
		if diff := cmp.Diff(c.want, l.hear(start().Add(c.after), c.reply, true), compareAddrs, comparePrefixes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if got, ok := l.hear(start(), c.reply, false).(Ack); ok {
			t.Errorf("%s: is believed when the guest sends it: %v", c.name, got)
		}
	}
}

// TestOneAnswer: a REQUEST is answered by one ACK; another one is not for the guest
// to believe, nor for us. A NAK before it is.
func TestOneAnswer(t *testing.T) {
	l := listener{mac: guestMAC()}
	l.hear(start(), toServer(dhcpv4.MessageTypeRequest, 7), false)
	var got []string
	for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeNak, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak} {
		if l.hear(start(), fromServer(kind, 7), true) != nil {
			got = append(got, kind.String())
		}
	}
	if diff := cmp.Diff([]string{"NAK", "ACK"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRequestsAreBounded: many REQUESTs cost no more memory, and the latest count.
func TestRequestsAreBounded(t *testing.T) {
	l := listener{mac: guestMAC()}
	for xid := range 100 {
		l.hear(start(), toServer(dhcpv4.MessageTypeRequest, byte(xid)), false)
	}
	if len(l.requests) != requestsKept {
		t.Errorf("%d requests are kept", len(l.requests))
	}
	for xid, want := range map[byte]bool{99: true, 92: true, 91: false} {
		if got := l.hear(start(), fromServer(dhcpv4.MessageTypeAck, xid), true) != nil; got != want {
			t.Errorf("ACK to REQUEST %d: believed %v", xid, got)
		}
	}
}

// TestFilter runs the part of the filter for either direction on frames: what is
// meant for the listener passes, whole, and no more.
func TestFilter(t *testing.T) {
	other := []byte{2, 0, 0, 0, 0, 9}
	arp := arpFrame(guestMAC(), guestMAC(), "192.0.2.10", "192.0.2.1")
	options := fromServer(dhcpv4.MessageTypeAck, 7)
	options = slices.Insert(options, etherLen+ipv4Len, make([]byte, 8)...) // IPv4 options
	options[etherLen], options[17] = 0x47, options[17]+8
	for _, c := range []struct {
		name    string
		toGuest bool
		frame   []byte
		class   class // 0: never passes
	}{
		{"DISCOVER", false, toServer(dhcpv4.MessageTypeDiscover, 7), messages},
		{"ACK from the guest", false, udp(guestMAC(), 67, 68, nil), messages},
		{"DNS", false, udp(guestMAC(), 1024, 53, nil), 0},
		{"ARP", false, arp, noise},
		{"RARP", false, ether(guestMAC(), unix.ETH_P_RARP, nil), noise},
		{"IPv6", false, ether(guestMAC(), unix.ETH_P_IPV6, make([]byte, 60)), 0},
		{"forged", false, ether(other, unix.ETH_P_IPV6, make([]byte, 60)), noise},
		{"forged in the first byte", false, ether([]byte{0x0b, 0x58, 0, 0, 0, 7}, unix.ETH_P_IPV6, nil), noise},
		{"ACK", true, fromServer(dhcpv4.MessageTypeAck, 7), replies},
		{"ACK with IPv4 options", true, options, replies},
		{"ACK for another", true, fromServer(dhcpv4.MessageTypeAck, 7, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = other }), 0},
		{"ACK for a similar one", true, fromServer(dhcpv4.MessageTypeAck, 7, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = []byte{0x0a, 0x58, 0, 0, 0, 8} }), 0},
		{"another's DISCOVER", true, udp(other, 68, 67, message(dhcpv4.OpcodeBootRequest, dhcpv4.MessageTypeDiscover, 7)), 0},
		{"ARP for the guest", true, arp, 0},
		{"short", true, []byte{1, 2, 3}, 0},
	} {
		for heard := range everything + 1 {
			part := fromGuest
			if c.toGuest {
				part = toGuest
			}
			vm, err := bpf.NewVM(part(guestMAC(), heard))
			if err != nil {
				t.Fatal(err)
			}
			kept, err := vm.Run(c.frame)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if c.class&heard != 0 {
				want = whole
			}
			if c.class&heard == noise {
				want = head
			}
			if kept != want {
				t.Errorf("%s with %q heard: %d bytes pass, want %d", c.name, heard, kept, want)
			}
		}
		if l := (&listener{mac: guestMAC()}); c.class != 0 && l.class(c.frame, c.toGuest) != c.class {
			t.Errorf("%s: class %q", c.name, l.class(c.frame, c.toGuest))
		}
	}
}

func TestQuota(t *testing.T) {
	var q quota
	now, taken := start(), 0
	for range 1000 {
		if q.take(now) {
			taken++
		}
	}
	now = now.Add(time.Second)
	for range 1000 {
		if q.take(now) {
			taken++
		}
	}
	if taken != quotaBurst+quotaRate {
		t.Errorf("%d frames are looked at", taken)
	}
	if q.take(now.Add(-time.Hour)) {
		t.Error("a clock that was put back gives more")
	}
}

// FuzzHear: whatever is on the wire, nothing panics, and a lease is only learned
// from what goes to the guest, for its MAC address.
func FuzzHear(f *testing.F) {
	f.Add(toServer(dhcpv4.MessageTypeRequest, 7), fromServer(dhcpv4.MessageTypeAck, 7))
	f.Add(arpFrame(guestMAC(), guestMAC(), "192.0.2.10", "192.0.2.1"), fromServer(dhcpv4.MessageTypeNak, 7, option(dhcpv4.OptionOptionOverload, 3)))
	f.Add(ether(guestMAC(), unix.ETH_P_RARP, nil), fromServer(dhcpv4.MessageTypeAck, 7, option(dhcpv4.OptionClasslessStaticRoute, 0, 192, 0, 2, 7)))
	f.Fuzz(func(t *testing.T, guest, network []byte) {
		l := listener{mac: guestMAC()}
		l.class(guest, false)
		l.hear(start(), toServer(dhcpv4.MessageTypeRequest, 7), false)
		if got, ok := l.hear(start(), guest, false).(Ack); ok {
			t.Fatalf("the guest's own ACK: %v", got)
		}
		ack, ok := l.hear(start(), network, true).(Ack)
		if !ok {
			return
		}
		if !isHost(ack.Lease.Addr.Addr()) || !bytes.Contains(network, guestMAC()) || !bytes.Equal(ack.Lease.HardwareAddr, guestMAC()) {
			t.Fatalf("%+v", ack.Lease)
		}
		s, _ := NewState(start()).Next(start(), ack)
		_, _ = s.Next(start(), arp("192.0.2.10"))
	})
}
