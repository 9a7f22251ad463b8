// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// class is a kind of frames that is listened to, or not, on its own: so a flood of
// one doesn't drown the others. Values can be combined.
type class uint8

const (
	// replies are those of DHCP servers to the guest.
	replies class = 1 << iota
	// messages are the guest's to DHCP servers, and what servers say when the guest
	// says it.
	messages
	// noise is the guest's ARP and RARP, and what is not from its MAC address.
	noise

	everything = replies | messages | noise
)

func (c class) String() string {
	var out []string
	for i, name := range []string{"replies to DHCP clients", "DHCP messages", "ARP or forged frames"} {
		if c&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// What is kept of a frame: all, or what an ARP frame has.
const (
	whole = 0xffff
	head  = 64
)

// filter lets pass the frames of the classes on the port of mac, and nothing that
// has a VLAN tag, which the kernel has taken out of the data (0 is a priority, not a
// VLAN). A server's broadcast to another client wakes nobody, on however many ports
// it leaves.
func filter(mac net.HardwareAddr, heard class) ([]bpf.RawInstruction, error) {
	fromGuest, toGuest := fromGuest(mac, heard), toGuest(mac, heard)
	program, err := bpf.Assemble(slices.Concat(
		[]bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtVLANTag}},
		require(bpf.JumpBitsNotSet, 0x0fff),
		[]bpf.Instruction{
			bpf.LoadExtension{Num: bpf.ExtType},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: uint8(len(fromGuest))},
		},
		fromGuest,
		toGuest,
	))
	if err != nil {
		return nil, fmt.Errorf("assembling filter: %w", err)
	}
	return program, nil
}

func fromGuest(mac net.HardwareAddr, heard class) []bpf.Instruction {
	var out []bpf.Instruction
	if heard&noise != 0 {
		out = slices.Concat(
			[]bpf.Instruction{bpf.LoadAbsolute{Off: 6, Size: 4}},
			accept(bpf.JumpNotEqual, binary.BigEndian.Uint32(mac), head),
			[]bpf.Instruction{bpf.LoadAbsolute{Off: 10, Size: 2}},
			accept(bpf.JumpNotEqual, uint32(binary.BigEndian.Uint16(mac[4:])), head),
			[]bpf.Instruction{bpf.LoadAbsolute{Off: 12, Size: 2}},
			accept(bpf.JumpEqual, unix.ETH_P_ARP, head),
			accept(bpf.JumpEqual, unix.ETH_P_RARP, head),
		)
	}
	if heard&messages != 0 {
		out = slices.Concat(out, datagrams(),
			[]bpf.Instruction{bpf.LoadIndirect{Off: etherLen + 2, Size: 2}}, // to
			accept(bpf.JumpEqual, dhcpv4.ServerPort, whole),
			[]bpf.Instruction{bpf.LoadIndirect{Off: etherLen, Size: 2}}, // from
			accept(bpf.JumpEqual, dhcpv4.ServerPort, whole),
		)
	}
	return append(out, bpf.RetConstant{Val: 0})
}

func toGuest(mac net.HardwareAddr, heard class) []bpf.Instruction {
	if heard&replies == 0 {
		return []bpf.Instruction{bpf.RetConstant{Val: 0}}
	}
	const chaddr = etherLen + udpLen + 28 // and the IPv4 header
	return slices.Concat(datagrams(),
		[]bpf.Instruction{bpf.LoadIndirect{Off: etherLen, Size: 4}},
		require(bpf.JumpEqual, dhcpv4.ServerPort<<16|dhcpv4.ClientPort),
		[]bpf.Instruction{bpf.LoadIndirect{Off: chaddr, Size: 4}},
		require(bpf.JumpEqual, binary.BigEndian.Uint32(mac)),
		[]bpf.Instruction{bpf.LoadIndirect{Off: chaddr + 4, Size: 2}},
		require(bpf.JumpEqual, uint32(binary.BigEndian.Uint16(mac[4:]))),
		[]bpf.Instruction{bpf.RetConstant{Val: whole}},
	)
}

// datagrams lets only whole UDP datagrams over IPv4 go on, with the length of the
// IPv4 header in X.
func datagrams() []bpf.Instruction {
	return slices.Concat(
		[]bpf.Instruction{bpf.LoadAbsolute{Off: 12, Size: 2}},
		require(bpf.JumpEqual, unix.ETH_P_IP),
		[]bpf.Instruction{bpf.LoadAbsolute{Off: etherLen + 9, Size: 1}},
		require(bpf.JumpEqual, unix.IPPROTO_UDP),
		[]bpf.Instruction{bpf.LoadAbsolute{Off: etherLen + 6, Size: 2}},
		require(bpf.JumpBitsNotSet, fragmentBits),
		[]bpf.Instruction{bpf.LoadMemShift{Off: etherLen}},
	)
}

// require drops the frame unless what is loaded passes the test.
func require(test bpf.JumpTest, val uint32) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: test, Val: val, SkipTrue: 1}, bpf.RetConstant{Val: 0}}
}

// accept keeps so many bytes of the frame if what is loaded passes the test.
func accept(test bpf.JumpTest, val, bytes uint32) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: test, Val: val, SkipFalse: 1}, bpf.RetConstant{Val: bytes}}
}
