// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"
)

// TestUDPFrame holds the bytes of a frame against ones made elsewhere.
func TestUDPFrame(t *testing.T) {
	got := udpFrame(clientHW, serverHW, netip.MustParseAddrPort("192.0.2.77:68"), netip.MustParseAddrPort("192.0.2.1:67"), []byte("odd"))
	want := "020000000001" + "0a580a010203" + "0800" +
		"4500001f00004000" + "4011b67f" + "c000024d" + "c0000201" +
		"00440043000b" + "a79d" + "6f6464"
	if hex.EncodeToString(got) != want {
		t.Errorf("got  %x\nwant %s", got, want)
	}
}

// TestChecksums sums frames of odd and even length as a receiver does.
func TestChecksums(t *testing.T) {
	for n := range 64 {
		f := udpFrame(clientHW, serverHW, netip.MustParseAddrPort("192.0.2.77:68"), netip.MustParseAddrPort("192.0.2.1:67"), bytes.Repeat([]byte{0xfe}, n))
		if got := sum(0, f[14:34]); got != 0xffff {
			t.Errorf("%d bytes: IPv4 header sums to %#x", n, got)
		}
		pseudo := append(bytes.Clone(f[26:34]), 0, 17, f[38], f[39])
		if got := sum(0, append(pseudo, f[34:]...)); got != 0xffff {
			t.Errorf("%d bytes: UDP sums to %#x", n, got)
		}
	}
	// A payload that makes the UDP checksum 0, which is not to be sent.
	zero := udpFrame(clientHW, serverHW, netip.MustParseAddrPort("192.0.2.77:68"), netip.MustParseAddrPort("192.0.2.1:67"), []byte{0, 0})
	f := udpFrame(clientHW, serverHW, netip.MustParseAddrPort("192.0.2.77:68"), netip.MustParseAddrPort("192.0.2.1:67"), zero[40:42])
	if !bytes.Equal(f[40:42], []byte{0xff, 0xff}) {
		t.Errorf("UDP checksum 0 is sent as % x", f[40:42])
	}
}

// change returns the frame f with bytes from offset on replaced.
func change(f []byte, offset int, b ...byte) []byte {
	f = bytes.Clone(f)
	copy(f[offset:], b)
	return f
}

// TestClientFrames tells which frames pass the kernel's filter, and what the code
// behind it makes of them.
func TestClientFrames(t *testing.T) {
	vm, err := bpf.NewVM(clientFrames())
	if err != nil {
		t.Fatal(err)
	}
	good := payloadFrame([]byte("payload"))
	withOptions := change(append(bytes.Clone(good[:34]), append([]byte{1, 1, 1, 0}, good[34:]...)...), 14, 0x46)
	withOptions = change(withOptions, 16, 0, 20+4+8+7)
	reply := arpFrame(arpOpReply, clientHW, serverHW, serverIP, clientHW, leasedIP)

	for name, test := range map[string]struct {
		frame        []byte
		passes, dhcp bool
	}{
		"good":             {good, true, true},
		"padded":           {append(bytes.Clone(good), make([]byte, 18)...), true, true},
		"IP options":       {withOptions, true, true},
		"bad UDP checksum": {change(good, 40, 0xde, 0xad), true, true},
		"don't fragment":   {change(good, 20, 0x40, 0), true, true},
		"first fragment":   {change(good, 20, 0x20, 0), false, false},
		"last fragment":    {change(good, 20, 0, 1), false, false},
		"to the server":    {change(good, 36, 0, 67), false, false},
		"TCP":              {change(good, 23, 6), false, false},
		"IPv6":             {change(good, 12, 0x86, 0xdd), false, false},
		"ARP reply":        {reply, true, false},
		"ARP request":      {arpRequest(serverHW, serverIP, leasedIP), false, false},
		"short":            {good[:20], false, false},
		"cut":              {good[:len(good)-1], true, false},
		"IP too short":     {change(good, 16, 0, 27), true, false},
		"IP header short":  {change(good, 14, 0x41), false, false},
		"version":          {change(good, 14, 0x65), true, false},
		"UDP too long":     {change(good, 38, 0, 16), true, false},
		"UDP too short":    {change(good, 38, 0, 7), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := vm.Run(test.frame)
			if err != nil {
				t.Fatal(err)
			}
			if passes := n > 0; passes != test.passes {
				t.Errorf("passes the filter: %v", passes)
			}
			payload, from, ok := dhcpPayload(test.frame)
			if ok != test.dhcp {
				t.Fatalf("is DHCP: %v", ok)
			}
			if ok && (string(payload) != "payload" || !bytes.Equal(from, serverHW)) {
				t.Errorf("payload %q from %v", payload, from)
			}
		})
	}
}

func TestARPAnswer(t *testing.T) {
	reply := arpFrame(arpOpReply, clientHW, serverHW, serverIP, clientHW, leasedIP)
	for name, test := range map[string]struct {
		frame []byte
		want  net.HardwareAddr
	}{
		"good":            {reply, serverHW},
		"padded":          {append(bytes.Clone(reply), make([]byte, 18)...), serverHW},
		"cut":             {reply[:41], nil},
		"request":         {change(reply, 20, 0, 1), nil},
		"not ARP":         {change(reply, 12, 0x08, 0), nil},
		"not IPv4":        {change(reply, 16, 0x86, 0xdd), nil},
		"of another":      {change(reply, 31, 9), nil},
		"to another":      {change(reply, 41, 9), nil},
		"a group's":       {change(reply, 22, 1), nil},
		"our own request": {arpRequest(clientHW, leasedIP, serverIP), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := arpAnswer(test.frame, leasedIP, serverIP)
			if ok != (test.want != nil) || ok && !bytes.Equal(got, test.want) {
				t.Errorf("got %v, %v", got, ok)
			}
		})
	}
}
