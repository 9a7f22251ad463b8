// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeARP  = 0x0806
	protocolUDP   = 17

	etherLen = 14
	ipv4Len  = 20 // without options
	udpLen   = 8
	arpLen   = 28 // Ethernet and IPv4

	arpOpRequest = 1
	arpOpReply   = 2
)

// appendEther appends an Ethernet header.
func appendEther(b []byte, dst, src net.HardwareAddr, etherType uint16) []byte {
	return binary.BigEndian.AppendUint16(append(append(b, dst...), src...), etherType)
}

// etherBroadcast is the link-layer address of all stations.
func etherBroadcast() net.HardwareAddr {
	return net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
}

// udpFrame builds an Ethernet frame with a UDP datagram over IPv4. Both checksums
// are complete: nothing is left to offloading, which is not to be had on every
// datapath.
func udpFrame(srcHW, dstHW net.HardwareAddr, src, dst netip.AddrPort, payload []byte) []byte {
	be := binary.BigEndian
	size := udpLen + len(payload)
	b := make([]byte, 0, etherLen+ipv4Len+size)
	b = appendEther(b, dstHW, srcHW, etherTypeIPv4)

	b = append(b, 0x45, 0) // version 4, five words of header
	b = be.AppendUint16(b, uint16(ipv4Len+size))
	b = append(b, 0, 0, 0x40, 0) // atomic datagram, RFC 6864: id 0, don't fragment
	b = append(b, 64, protocolUDP, 0, 0)
	b = append(append(b, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	ip := b[etherLen:]
	be.PutUint16(ip[10:], ^sum(0, ip))

	b = be.AppendUint16(b, src.Port())
	b = be.AppendUint16(b, dst.Port())
	b = be.AppendUint16(b, uint16(size))
	b = append(b, 0, 0)
	b = append(b, payload...)
	udp := b[etherLen+ipv4Len:]
	pseudo := uint32(protocolUDP) + uint32(size) + uint32(sum(0, ip[12:ipv4Len]))
	check := ^sum(pseudo, udp)
	if check == 0 {
		check = 0xffff // 0 would mean that there is none
	}
	be.PutUint16(udp[6:], check)
	return b
}

// sum is the ones' complement sum of RFC 1071, begun with init.
func sum(init uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		init += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		init += uint32(b[0]) << 8
	}
	for init > 0xffff {
		init = init>>16 + init&0xffff
	}
	return uint16(init)
}

// dhcpPayload returns what a frame carries to the DHCP client port, and who sent
// the frame. Checksums are not looked at: over a veth the sender's kernel leaves
// them unfinished, and a NIC has checked them already.
func dhcpPayload(frame []byte) (payload []byte, from net.HardwareAddr, ok bool) {
	be := binary.BigEndian
	if len(frame) < etherLen+ipv4Len || be.Uint16(frame[12:]) != etherTypeIPv4 {
		return nil, nil, false
	}
	ip := frame[etherLen:]
	header, total := int(ip[0]&0x0f)*4, int(be.Uint16(ip[2:]))
	fragment := be.Uint16(ip[6:])&0x3fff != 0
	if ip[0]>>4 != 4 || ip[9] != protocolUDP || fragment || header < ipv4Len || total > len(ip) || total < header+udpLen {
		return nil, nil, false
	}
	udp := ip[header:total] // short frames are padded, so the frame's end is not the datagram's
	size := int(be.Uint16(udp[4:]))
	if be.Uint16(udp[2:]) != dhcpv4.ClientPort || size < udpLen || size > len(udp) {
		return nil, nil, false
	}
	return udp[udpLen:size], bytes.Clone(frame[6:12]), true
}

// arpRequest asks, as the owner of the address own at hw, who has target.
func arpRequest(hw net.HardwareAddr, own, target netip.Addr) []byte {
	return arpFrame(arpOpRequest, etherBroadcast(), hw, own, make(net.HardwareAddr, 6), target)
}

func arpFrame(op uint16, dst, senderHW net.HardwareAddr, sender netip.Addr, targetHW net.HardwareAddr, target netip.Addr) []byte {
	b := make([]byte, 0, etherLen+arpLen)
	b = appendEther(b, dst, senderHW, etherTypeARP)
	b = append(b, 0, 1, 8, 0, 6, 4) // Ethernet, IPv4, their lengths
	b = binary.BigEndian.AppendUint16(b, op)
	b = append(append(b, senderHW...), sender.AsSlice()...)
	return append(append(b, targetHW...), target.AsSlice()...)
}

// arpAnswer returns the hardware address that an ARP reply to own gives for target.
func arpAnswer(frame []byte, own, target netip.Addr) (net.HardwareAddr, bool) {
	if len(frame) < etherLen+arpLen || binary.BigEndian.Uint16(frame[12:]) != etherTypeARP {
		return nil, false
	}
	arp := frame[etherLen : etherLen+arpLen]
	if !bytes.Equal(arp[:8], []byte{0, 1, 8, 0, 6, 4, 0, arpOpReply}) {
		return nil, false
	}
	if !bytes.Equal(arp[14:18], target.AsSlice()) || !bytes.Equal(arp[24:28], own.AsSlice()) {
		return nil, false
	}
	hw := net.HardwareAddr(bytes.Clone(arp[8:14]))
	return hw, hw[0]&1 == 0 // a group address is nobody's
}
