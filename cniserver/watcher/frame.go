// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

const (
	etherLen = 14
	ipv4Len  = 20 // without options
	udpLen   = 8
	arpLen   = 28 // Ethernet and IPv4

	broadcastHW = "\xff\xff\xff\xff\xff\xff"
)

// listener makes sense of the frames of one port. It takes whatever there is: the
// guest writes what it likes.
type listener struct {
	mac      net.HardwareAddr
	requests requests
}

// class sorts a frame before it is looked at in earnest.
func (l *listener) class(frame []byte, toGuest bool) class {
	switch {
	case toGuest:
		return replies
	case len(frame) >= etherLen && bytes.Equal(frame[6:12], l.mac) && etherType(frame) == unix.ETH_P_IP:
		return messages
	default:
		return noise
	}
}

// hear returns what a frame means, or nil. It keeps nothing of the frame itself.
func (l *listener) hear(now time.Time, frame []byte, toGuest bool) Sighting {
	if len(frame) < etherLen {
		return nil
	}
	source := frame[6:12]
	if toGuest {
		d, ok := parseDatagram(frame)
		if !ok || d.from != dhcpv4.ServerPort || d.to != dhcpv4.ClientPort {
			return nil
		}
		return l.reply(now, d.payload, source)
	}
	if !bytes.Equal(source, l.mac) {
		if group := frame[0]&1 != 0 && string(frame[:6]) != broadcastHW; group {
			// A hypervisor that puts the pod's interface on a bridge gives it another
			// address, from which the pod's kernel joins groups (RFC 3376, RFC 3810).
			return nil
		}
		return ForeignMAC{slices.Clone(source)}
	}
	switch etherType(frame) {
	case unix.ETH_P_ARP:
		return l.arp(frame[etherLen:])
	case unix.ETH_P_RARP:
		return RARP{}
	}
	d, ok := parseDatagram(frame)
	switch {
	case !ok:
		return nil
	case d.from == dhcpv4.ServerPort && d.to == dhcpv4.ClientPort:
		return ServerTraffic{}
	case d.to == dhcpv4.ServerPort:
		return l.message(now, d.payload)
	}
	return nil
}

func etherType(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[12:]) }

// arp decodes an ARP packet (RFC 826) of the guest.
func (l *listener) arp(b []byte) Sighting {
	if len(b) < arpLen || !bytes.Equal(b[:6], []byte{0, 1, 8, 0, 6, 4}) {
		return nil
	}
	if hw := b[8:14]; !bytes.Equal(hw, l.mac) {
		return ForeignMAC{slices.Clone(hw)}
	}
	sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	return ARP{Sender: sender, Gratuitous: sender == target}
}

// datagram is what a UDP datagram over IPv4 holds.
type datagram struct {
	from, to uint16
	payload  []byte
}

// parseDatagram takes a whole UDP datagram out of a frame. Checksums are not looked
// at: on a veth the sender's kernel leaves them unfinished.
func parseDatagram(frame []byte) (datagram, bool) {
	be := binary.BigEndian
	if len(frame) < etherLen+ipv4Len+udpLen || etherType(frame) != unix.ETH_P_IP {
		return datagram{}, false
	}
	ip := frame[etherLen:]
	header, total := int(ip[0]&0x0f)*4, int(be.Uint16(ip[2:]))
	if ip[0]>>4 != 4 || ip[9] != unix.IPPROTO_UDP || be.Uint16(ip[6:])&fragmentBits != 0 {
		return datagram{}, false
	}
	if header < ipv4Len || total < header+udpLen || total > len(ip) {
		return datagram{}, false
	}
	udp := ip[header:total] // what is behind it is padding
	size := int(be.Uint16(udp[4:]))
	if size < udpLen || size > len(udp) {
		return datagram{}, false
	}
	return datagram{from: be.Uint16(udp), to: be.Uint16(udp[2:]), payload: udp[udpLen:size]}, true
}

// fragmentBits are those of the IPv4 header's flags and offset that a fragment has.
const fragmentBits = 0x3fff
