// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// The client, the server and the network of the tests.
var (
	clientHW = net.HardwareAddr{0x0a, 0x58, 0x0a, 0x01, 0x02, 0x03}
	serverHW = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
	serverIP = netip.MustParseAddr("192.0.2.1")
	leasedIP = netip.MustParseAddr("192.0.2.77")
)

// edit changes a server's message.
type edit func(*dhcpv4.DHCPv4)

// option sets an option's bytes, or takes it out if there are none.
func option(code dhcpv4.OptionCode, value ...byte) edit {
	return func(m *dhcpv4.DHCPv4) {
		if len(value) == 0 {
			m.Options.Del(code)
		} else {
			m.Options[code.Code()] = value
		}
	}
}

// answer is a server's message to the client, complete and good but for the edits.
func answer(xid dhcpv4.TransactionID, kind dhcpv4.MessageType, edits ...edit) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{
		OpCode:        dhcpv4.OpcodeBootReply,
		HWType:        iana.HWTypeEthernet,
		TransactionID: xid,
		YourIPAddr:    leasedIP.AsSlice(),
		ClientHWAddr:  clientHW,
		Options: dhcpv4.Options{
			dhcpv4.OptionDHCPMessageType.Code():    {byte(kind)},
			dhcpv4.OptionServerIdentifier.Code():   serverIP.AsSlice(),
			dhcpv4.OptionSubnetMask.Code():         {255, 255, 255, 0},
			dhcpv4.OptionIPAddressLeaseTime.Code(): {0, 0, 0x0e, 0x10}, // an hour
		},
	}
	for _, e := range edits {
		e(m)
	}
	return m
}

// serverFrame is the frame in which a server sends m.
func serverFrame(m *dhcpv4.DHCPv4) []byte {
	return payloadFrame(m.ToBytes())
}

func payloadFrame(payload []byte) []byte {
	return udpFrame(serverHW, etherBroadcast(), netip.AddrPortFrom(serverIP, 67), netip.MustParseAddrPort("255.255.255.255:68"), payload)
}

// wire is a conn with a scripted far side.
type wire struct {
	t     *testing.T
	began time.Time
	sent  []sent
	// script returns the frames that come back for the frame just sent.
	script func(s sent) [][]byte
	// failure, if set, says what the sending of a frame fails with.
	failure func(n int) error
	rx      chan []byte
}

// sent is a frame that was sent, when, and what is in it.
type sent struct {
	n     int // from 0
	after time.Duration
	frame []byte
	// dhcp is nil if the frame is an ARP request.
	dhcp *dhcpv4.DHCPv4
}

func newWire(t *testing.T, script func(s sent) [][]byte) *wire {
	return &wire{t: t, began: time.Now(), script: script, rx: make(chan []byte, 100)}
}

func (w *wire) send(frame []byte) error {
	s := sent{n: len(w.sent), after: time.Since(w.began), frame: bytes.Clone(frame)}
	if frame[12] == 0x08 && frame[13] == 0 {
		m, err := dhcpv4.FromBytes(frame[42:])
		if err != nil {
			w.t.Errorf("frame %d: %v", s.n, err)
		}
		s.dhcp = m
	}
	w.sent = append(w.sent, s)
	if w.failure != nil {
		if err := w.failure(s.n); err != nil {
			return err
		}
	}
	for _, f := range w.script(s) {
		w.rx <- f
	}
	return nil
}

func (w *wire) awaitCarrier(context.Context) error { return nil }
func (w *wire) receivedInVain() uint64             { return 0 }
func (w *wire) Close() error                       { return nil }

func (w *wire) receive(ctx context.Context) ([]byte, error) {
	select {
	case f := <-w.rx:
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// later puts frames on the wire after a delay.
func (w *wire) later(d time.Duration, frames ...[]byte) {
	time.AfterFunc(d, func() {
		for _, f := range frames {
			w.rx <- f
		}
	})
}

// honest answers as a server should: an OFFER to a DISCOVER, an ACK to a REQUEST.
func honest(s sent, edits ...edit) [][]byte {
	switch s.dhcp.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return [][]byte{serverFrame(answer(s.dhcp.TransactionID, dhcpv4.MessageTypeOffer, edits...))}
	case dhcpv4.MessageTypeRequest:
		return [][]byte{serverFrame(answer(s.dhcp.TransactionID, dhcpv4.MessageTypeAck, edits...))}
	}
	return nil
}
