// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	// releaseTime bounds a Release; what can't be told by then is given up.
	releaseTime = time.Second
	// arpWait is the time for one ARP reply, arpTries how often to ask, and
	// releaseTries how often to send a RELEASE that nothing shows has left.
	arpWait      = 100 * time.Millisecond
	arpTries     = 4
	releaseTries = 3
)

// ErrUnconfirmed tells that a RELEASE was sent, but that nothing shows that it has
// left the link.
var ErrUnconfirmed = errors.New("RELEASE sent without a sign that it has left")

// Release gives a lease back (RFC 2131, 4.4.6): unicast to the server, from the
// leased address, whether or not the interface has it. RELEASE has no answer, so
// the next hop is asked for its address once more after it: frames leave in
// order, and when the reply is here the RELEASE has left the link, so that the
// caller may take the interface down at once. It takes a second at most.
//
// If the next hop does not answer ARP, the RELEASE is sent to where the lease's
// ACK came from, and the error is ErrUnconfirmed. Any error means that the server
// may still hold the lease.
func Release(ctx context.Context, link *Link, lease Lease) error {
	if err := release(ctx, link, lease); err != nil {
		return fmt.Errorf("releasing %s on %s: %w", lease.Addr, link.name, err)
	}
	return nil
}

// ReleaseFor is Release for a client that may be on the network elsewhere meanwhile:
// nothing asks for an answer to its hardware address, which would come there. The next
// hop is asked by own, the address of link's interface. It learns from that who had the
// lease last; the RELEASE itself is from the client's own address.
func ReleaseFor(ctx context.Context, link *Link, lease Lease, own net.HardwareAddr) error {
	if err := releaseFor(ctx, link, lease, own); err != nil {
		return fmt.Errorf("releasing %s on %s: %w", lease.Addr, link.name, err)
	}
	return nil
}

func release(ctx context.Context, c conn, lease Lease) error {
	return releaseFor(ctx, c, lease, lease.HardwareAddr)
}

// releaseFor gives a lease back, with ARP by the hardware address asker.
func releaseFor(ctx context.Context, c conn, lease Lease, asker net.HardwareAddr) error {
	if !isHost(lease.Addr.Addr()) || !isHost(lease.Server) || len(lease.HardwareAddr) != 6 {
		return errors.New("lease without address, server or hardware address")
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()

	hop := nextHop(lease)
	hopHW, err := resolve(ctx, c, asker, lease, hop, arpTries)
	switch {
	case err == nil:
		return sendRelease(ctx, c, asker, lease, hop, hopHW)
	case errors.Is(err, errUnanswered) && len(lease.ServerHW) == 6:
		if err := c.send(releaseFrame(lease, lease.ServerHW)); err != nil {
			return err
		}
		return fmt.Errorf("%w: next hop %s does not answer", ErrUnconfirmed, hop)
	default:
		return fmt.Errorf("resolving next hop %s: %w", hop, err)
	}
}

// sendRelease sends the RELEASE by way of hop until a later frame is answered.
func sendRelease(ctx context.Context, c conn, asker net.HardwareAddr, lease Lease, hop netip.Addr, hopHW net.HardwareAddr) error {
	frame := releaseFrame(lease, hopHW)
	for range releaseTries {
		if err := c.send(frame); err != nil {
			return err
		}
		if _, err := resolve(ctx, c, asker, lease, hop, 1); !errors.Is(err, errUnanswered) {
			return err
		}
	}
	return fmt.Errorf("sent, but next hop %s does not answer any more", hop)
}

// nextHop is whom to hand a datagram for the server: the server itself if it is
// on the subnet, else the gateway. If there is neither, the server has answered a
// broadcast and may be on the link all the same.
func nextHop(lease Lease) netip.Addr {
	if !lease.Addr.Contains(lease.Server) && lease.Gateway.IsValid() {
		return lease.Gateway
	}
	return lease.Server
}

// releaseFrame builds the RELEASE: without requested address, lease time and
// parameter request list, as RFC 2131, table 5, has it.
func releaseFrame(lease Lease, hopHW net.HardwareAddr) []byte {
	var xid dhcpv4.TransactionID
	binary.NativeEndian.PutUint32(xid[:], rand.Uint32())
	m := clientMessage(dhcpv4.MessageTypeRelease, xid, lease.HardwareAddr, lease.ClientID)
	m.ClientIPAddr = lease.Addr.Addr().AsSlice()
	m.Options[dhcpv4.OptionServerIdentifier.Code()] = lease.Server.AsSlice()
	return udpFrame(lease.HardwareAddr, hopHW,
		netip.AddrPortFrom(lease.Addr.Addr(), dhcpv4.ClientPort),
		netip.AddrPortFrom(lease.Server, dhcpv4.ServerPort), m.ToBytes())
}

// resolve asks, as the lease's owner, for the hardware address of target, to be told to
// asker. Its error is errUnanswered if none of the tries was answered.
func resolve(ctx context.Context, c conn, asker net.HardwareAddr, lease Lease, target netip.Addr, tries int) (net.HardwareAddr, error) {
	own := lease.Addr.Addr()
	for range tries {
		if err := c.send(arpRequest(asker, own, target)); err != nil {
			return nil, err
		}
		var hw net.HardwareAddr
		err := await(ctx, c, arpWait, func(frame []byte) (ok bool) {
			hw, ok = arpAnswer(frame, own, target)
			return ok
		})
		if !errors.Is(err, errUnanswered) {
			return hw, err
		}
	}
	return nil, errUnanswered
}
