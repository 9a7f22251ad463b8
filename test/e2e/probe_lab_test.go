// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/mdlayher/packet"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// station is an interface on the network that probes are sent from and received
// on, as frames: what is filtered on their way is filtered by OVN.
type station struct {
	mac  net.HardwareAddr
	addr netip.Addr
	conn *packet.Conn
}

// station opens an interface in a network namespace.
func (w *world) station(netns, ifname string, mac net.HardwareAddr, addr netip.Addr) *station {
	w.t.Helper()
	return w.stationIn(w.Lab.NetnsPath(netns), ifname, mac, addr)
}

// stationIn opens an interface in the network namespace of a path.
func (w *world) stationIn(path, ifname string, mac net.HardwareAddr, addr netip.Addr) *station {
	w.t.Helper()
	s := &station{mac: mac, addr: addr}
	w.must(ns.WithNetNSPath(path, func(ns.NetNS) error {
		ifi, err := net.InterfaceByName(ifname)
		if err == nil {
			s.conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, nil)
		}
		return err
	}))
	w.t.Cleanup(func() { s.conn.Close() })
	return s
}

// flow is one packet's protocol and ports.
type flow struct {
	protocol       byte
	source, target uint16
}

// probes is how many packets make a probe.
const probes = 3

// probe sends some packets of a service ("tcp/80"), and behind them what nothing
// filters by the same way, and counts what has arrived before that. A packet that
// opens a connection must also be answered, by the other end's kernel. It returns
// what is not as wanted, "" if all is.
func (w *world) probe(from, to *station, service string, want bool) string {
	w.t.Helper()
	f := flow{unix.IPPROTO_TCP, 20000 + w.probed*probes, 0}
	w.probed++
	protocol, port, _ := strings.Cut(service, "/")
	if protocol == "udp" {
		f.protocol = unix.IPPROTO_UDP
	}
	target, err := strconv.ParseUint(port, 10, 16)
	w.must(err)
	f.target = uint16(target)
	// Each is a connection of its own: OVS 3.1 doesn't survive one that is opened
	// again after a RST.
	var flows []flow
	for range probes {
		w.send(from, to.mac, from.packet(to, f))
		flows = append(flows, f)
		f.source++
	}
	arrived := 0
	count := func(frame []byte) {
		for _, f := range flows {
			if isPacket(frame, from.addr, to.addr, f) {
				arrived++
			}
		}
	}
	// A switch may swap what it gets at once, so a second marker follows when the
	// first one has arrived.
	w.mark(from, to, count)
	w.mark(from, to, count)
	deadline := time.Now().Add(within)
	switch {
	case want && arrived < probes, !want && arrived > 0:
		return fmt.Sprintf("%d of %d packets arrive", arrived, probes)
	case want && f.protocol == unix.IPPROTO_TCP:
		back := flow{f.protocol, f.target, flows[probes-1].source}
		for !isPacket(w.receive(from, deadline), to.addr, from.addr, back) {
			if time.Now().After(deadline) {
				return "nothing comes back"
			}
		}
	}
	return ""
}

// within is how long a frame may take.
const within = 10 * time.Second

// mark sends an ARP request for an address that is nobody's, another one each
// time, and awaits it at the other end. The frames before it are counted.
func (w *world) mark(from, to *station, count func(frame []byte)) {
	w.t.Helper()
	w.marks++
	request := from.arp(netip.AddrFrom4([4]byte{198, 18, byte(w.marks >> 8), byte(w.marks)}))
	deadline := time.Now().Add(within)
	var again time.Time
	for {
		now := time.Now()
		if now.After(deadline) {
			w.t.Fatalf("not even ARP arrives at %s from %s", to.addr, from.addr)
		}
		if now.After(again) {
			w.send(from, broadcast, request)
			again = now.Add(time.Second)
		}
		frame := w.receive(to, again)
		if bytes.HasPrefix(frame, request) {
			return
		}
		count(frame)
	}
}

var broadcast = bytes.Repeat([]byte{0xff}, 6)

func (w *world) send(from *station, to net.HardwareAddr, frame []byte) {
	w.t.Helper()
	_, err := from.conn.WriteTo(frame, &packet.Addr{HardwareAddr: to})
	w.must(err)
}

// receive returns the next frame that comes before a time, nil if none does.
func (w *world) receive(s *station, before time.Time) []byte {
	w.t.Helper()
	w.must(s.conn.SetReadDeadline(before))
	frame := make([]byte, 2048)
	n, _, err := s.conn.ReadFrom(frame)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		return nil
	}
	w.must(err)
	return frame[:n]
}

// packet is a UDP packet, or one that opens a TCP connection.
func (s *station) packet(to *station, f flow) []byte {
	source, target := s.addr.As4(), to.addr.As4()
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, f.source), f.target)
	var segment []byte
	if f.protocol == unix.IPPROTO_UDP {
		segment = slices.Concat(ports, []byte{0, 12, 0, 0}, []byte("test"))
	} else {
		segment = slices.Concat(ports, []byte{0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 2, 0xff, 0xff, 0, 0, 0, 0}) // SYN
		pseudo := slices.Concat(source[:], target[:], []byte{0, f.protocol, 0, byte(len(segment))})
		binary.BigEndian.PutUint16(segment[16:], checksum(append(pseudo, segment...)))
	}
	header := slices.Concat([]byte{0x45, 0, 0, byte(20 + len(segment)), 0, 0, 0x40, 0, 64, f.protocol, 0, 0}, source[:], target[:])
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return slices.Concat(to.mac, s.mac, []byte{0x08, 0x00}, header, segment)
}

// checksum is that of RFC 1071.
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// arp is a request for an address.
func (s *station) arp(target netip.Addr) []byte {
	source, t := s.addr.As4(), target.As4()
	return slices.Concat(broadcast, s.mac, []byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1}, s.mac, source[:], make([]byte, 6), t[:])
}

// isPacket reports whether a frame is an IPv4 packet of a flow.
func isPacket(frame []byte, from, to netip.Addr, f flow) bool {
	if len(frame) < 38 || frame[12] != 0x08 || frame[13] != 0x00 || frame[14] != 0x45 || frame[23] != f.protocol {
		return false
	}
	source, target := from.As4(), to.As4()
	return bytes.Equal(frame[26:30], source[:]) && bytes.Equal(frame[30:34], target[:]) &&
		binary.BigEndian.Uint16(frame[34:]) == f.source && binary.BigEndian.Uint16(frame[36:]) == f.target
}

// marked sends a packet to another node, by way of the physical network, and
// returns what its TOS is if it is not as wanted.
func (w *world) marked(from, to *station, tos byte) string {
	w.t.Helper()
	f := flow{unix.IPPROTO_UDP, 20000 + w.probed*probes, 53}
	w.probed++
	w.send(from, to.mac, from.packet(to, f))
	got := -1
	count := func(frame []byte) {
		if isPacket(frame, from.addr, to.addr, f) {
			got = int(frame[15])
		}
	}
	w.mark(from, to, count)
	w.mark(from, to, count)
	if got != int(tos) {
		return fmt.Sprintf("TOS of a packet from %s is %#x, not %#x (-1: it does not arrive)", from.addr, got, tos)
	}
	return ""
}

// flood sends more than a rate limit allows, for some time, and returns the rate
// that passes, in kbit/s of frames.
func (w *world) flood(from, to *station, duration time.Duration) float64 {
	w.t.Helper()
	f := flow{unix.IPPROTO_UDP, 9, 9}
	frame := from.packet(to, f)
	frame = append(frame[:34], slices.Concat(frame[34:38], []byte{0x04, 0, 0, 0}, make([]byte, 1024-8))...)
	binary.BigEndian.PutUint16(frame[16:], 20+1024)
	copy(frame[24:26], []byte{0, 0})
	binary.BigEndian.PutUint16(frame[24:], checksum(frame[14:34]))
	var g errgroup.Group
	start := time.Now()
	g.Go(func() error {
		tick := time.NewTicker(time.Millisecond) // 8.5 Mbit/s
		defer tick.Stop()
		for now := range tick.C {
			if now.Sub(start) > duration {
				return nil
			}
			if _, err := from.conn.WriteTo(frame, &packet.Addr{HardwareAddr: to.mac}); err != nil {
				return err
			}
		}
		return nil
	})
	passed := 0
	for end := start.Add(duration); time.Now().Before(end); {
		if got := w.receive(to, end); isPacket(got, from.addr, to.addr, f) {
			passed += len(got)
		}
	}
	w.must(g.Wait())
	return float64(passed) * 8 / 1000 / duration.Seconds()
}
