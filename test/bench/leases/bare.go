// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// headers is the length of the IPv4 and UDP headers before a message.
	headers = 28
	// resendTime is how long to wait for the answer to a message.
	resendTime = time.Second
)

// bare is a DHCP client that does nothing but send two messages and receive two: no
// record, no check of what comes, no retransmission that is quick.
type bare struct {
	closing sync.WaitGroup
}

// acquire gets a lease when the link has carrier; it brings up one that was down when it
// was last looked at, as the daemons do. The socket is closed when nobody waits any more: the kernel takes longer for
// that than for the messages.
func (b *bare) acquire(ctx context.Context, p *pod) error {
	_, err := b.lease(ctx, p)
	return err
}

// lease is acquire, and returns the address.
func (b *bare) lease(ctx context.Context, p *pod) (net.IP, error) {
	if !p.hasCarrier() {
		if err := p.links.LinkSetUp(p.link); err != nil {
			return nil, fmt.Errorf("setting up the link of pod %s: %w", p.name, err)
		}
		if err := p.awaitCarrier(ctx, true); err != nil {
			return nil, err
		}
	}
	var conn *packet.Conn
	err := ns.WithNetNSPath(p.netns, func(ns.NetNS) error {
		filter, err := bpf.Assemble(toClientPort())
		if err != nil {
			return err
		}
		conn, err = packet.Listen(&net.Interface{Index: p.link.Attrs().Index}, packet.Datagram, unix.ETH_P_IP, &packet.Config{Filter: filter})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("socket of pod %s: %w", p.name, err)
	}
	defer b.closing.Go(func() { conn.Close() })
	id := dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte("\x00" + p.name)))
	discover, err := dhcpv4.NewDiscovery(p.hw, id)
	if err != nil {
		return nil, err
	}
	offer, err := exchange(ctx, conn, discover, dhcpv4.MessageTypeOffer)
	if err != nil {
		return nil, fmt.Errorf("offer for pod %s: %w", p.name, err)
	}
	request, err := dhcpv4.NewRequestFromOffer(offer, id)
	if err != nil {
		return nil, err
	}
	ack, err := exchange(ctx, conn, request, dhcpv4.MessageTypeAck)
	if err != nil {
		return nil, fmt.Errorf("acknowledgement for pod %s: %w", p.name, err)
	}
	return ack.YourIPAddr, nil
}

func (b *bare) close() error {
	b.closing.Wait()
	return nil
}

// exchange sends a message, again and again, until the answer is here.
func exchange(ctx context.Context, conn *packet.Conn, m *dhcpv4.DHCPv4, want dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	datagram, buf := broadcast(m.ToBytes()), make([]byte, 1500)
	to := &packet.Addr{HardwareAddr: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	for ctx.Err() == nil {
		if _, err := conn.WriteTo(datagram, to); err != nil {
			return nil, err
		}
		if err := conn.SetReadDeadline(time.Now().Add(resendTime)); err != nil {
			return nil, err
		}
		for {
			n, _, err := conn.ReadFrom(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, err
			}
			answer, err := dhcpv4.FromBytes(buf[min(n, headers):n])
			if err == nil && answer.TransactionID == m.TransactionID && answer.MessageType() == want {
				return answer, nil
			}
		}
	}
	return nil, context.Cause(ctx)
}

// broadcast is the IPv4 datagram in which a client without an address sends a message.
func broadcast(message []byte) []byte {
	d := make([]byte, headers, headers+len(message))
	d = append(d, message...)
	d[0] = 0x45
	d[2], d[3] = byte(len(d)>>8), byte(len(d))
	d[8], d[9] = 64, unix.IPPROTO_UDP
	copy(d[16:20], net.IPv4bcast.To4())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(d[i])<<8 | uint32(d[i+1])
	}
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	d[10], d[11] = byte(^sum>>8), byte(^sum)
	d[21], d[23] = dhcpv4.ClientPort, dhcpv4.ServerPort
	d[24], d[25] = byte((len(message)+8)>>8), byte(len(message)+8)
	return d
}

// toClientPort lets pass UDP datagrams without IPv4 options to a DHCP client.
func toClientPort() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x45, SkipTrue: 5},
		bpf.LoadAbsolute{Off: 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 3},
		bpf.LoadAbsolute{Off: 22, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: dhcpv4.ClientPort, SkipTrue: 1},
		bpf.RetConstant{Val: 0xffff},
		bpf.RetConstant{Val: 0},
	}
}
