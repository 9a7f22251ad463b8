// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	renewals = 3
	// renewSeconds is T1. The lease itself is longer: dnsmasq grants none below two
	// minutes.
	renewSeconds = 3
	// lateTime is how long after a renewal a frame may come that is due to it; it is
	// less than T1.
	lateTime = 2 * time.Second
	// renewTime bounds the wait for a renewal.
	renewTime = 3 * renewSeconds * time.Second
)

// frames are how many were on a pod's wire, in both directions.
type frames struct{ dhcp, arp, other int }

func (f frames) String() string {
	return fmt.Sprintf("%.1f DHCP, %.1f ARP, %.1f other", float64(f.dhcp)/renewals, float64(f.arp)/renewals, float64(f.other)/renewals)
}

// renewals counts the frames of renewals.
func (b *bench) renewals(ctx context.Context) error {
	var all [2]frames
	for column, p := range []program{b.ours, b.upstream} {
		progress("%s: the frames of %d renewals", columns()[column], renewals)
		if err := b.network.setLinks(ctx, 1); err != nil {
			return err
		}
		// T2 is far enough for a client to stay with its server.
		err := b.server.restart(ctx, fmt.Sprintf("--dhcp-option-force=58,%d", renewSeconds), "--dhcp-option-force=59,60")
		if err != nil {
			return err
		}
		d, err := b.start(ctx, p)
		if err != nil {
			return err
		}
		all[column], err = b.watch(ctx, d, b.network.pods[0])
		if err := errors.Join(err, d.close()); err != nil {
			return err
		}
	}
	mine := all[product]
	b.table.add(row{
		figure: "frames of a renewal", got: [contestants]string{mine.String(), all[1].String()}, goal: "2 and ARP", elsewhere: "7",
		met: mine.dhcp == 2*renewals && mine.other == 0,
	})
	return nil
}

// watch has a pod use a lease, and counts what is on its wire until some renewals are
// done.
func (b *bench) watch(ctx context.Context, d *daemon, p *pod) (frames, error) {
	addr, err := d.allocate(ctx, p)
	if err != nil {
		return frames{}, err
	}
	if err := p.links.AddrAdd(p.link, &netlink.Addr{IPNet: addr}); err != nil {
		return frames{}, err
	}
	port, err := net.InterfaceByName(p.port)
	if err != nil {
		return frames{}, err
	}
	tap, err := packet.Listen(port, packet.Raw, unix.ETH_P_ALL, nil)
	if err != nil {
		return frames{}, err
	}
	defer tap.Close()
	var seen frames
	until := time.Now().Add(renewTime)
	buf := make([]byte, 2048)
	for answers := 0; ; {
		if err := tap.SetReadDeadline(until); err != nil {
			return seen, err
		}
		n, _, err := tap.ReadFrom(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && answers >= renewals:
			return seen, nil
		case err != nil:
			return seen, fmt.Errorf("after %d renewals: %w", answers, err)
		case ctx.Err() != nil:
			return seen, context.Cause(ctx)
		}
		if seen.count(buf[:n]) {
			answers++
			until = time.Now().Add(renewTime)
			if answers == renewals {
				until = time.Now().Add(lateTime)
			}
		}
	}
}

// count counts a frame, and reports whether it is a server's answer.
func (f *frames) count(frame []byte) (answer bool) {
	const ether, udp = 14, 34
	if len(frame) < udp+8 {
		f.other++
		return false
	}
	switch to := binary.BigEndian.Uint16(frame[udp+2:]); {
	case binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_ARP:
		f.arp++
	case binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[ether+9] != unix.IPPROTO_UDP:
		f.other++
	case to == dhcpv4.ServerPort:
		f.dhcp++
	case to == dhcpv4.ClientPort:
		f.dhcp++
		return true
	default:
		f.other++
	}
	return false
}
