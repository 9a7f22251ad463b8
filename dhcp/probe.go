// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	// RFC 5227 asks three times, too, but takes up to nine seconds for it. Its
	// intervals are for networks on which a frame may be seconds on its way.
	probes    = 3
	probeWait = 150 * time.Millisecond
	// declineWait is the least time between a DECLINE and starting over (RFC 2131,
	// 3.1, 5).
	declineWait = 10 * time.Second
)

// conflict is an address that somebody else uses.
type conflict struct {
	addr netip.Addr
	user net.HardwareAddr
}

func (c *conflict) Error() string { return fmt.Sprintf("%s is in use by %s", c.addr, c.user) }

// probe asks, as one who has no address yet, who has the leased one. If somebody
// has, it declines the lease and returns a *conflict.
func (x *exchange) probe(ctx context.Context, lease Lease) error {
	nobody, addr := netip.IPv4Unspecified(), lease.Addr.Addr()
	for range probes {
		err := x.conn.send(arpRequest(x.cfg.HardwareAddr, nobody, addr))
		if linkGone(err) {
			return fmt.Errorf("probing %s: %w", addr, err)
		}
		var user net.HardwareAddr
		err = await(ctx, x.conn, probeWait, func(frame []byte) (ok bool) {
			user, ok = arpAnswer(frame, nobody, addr)
			return ok && !bytes.Equal(user, x.cfg.HardwareAddr)
		})
		switch {
		case err == nil:
			return errors.Join(&conflict{addr, user}, x.decline(lease))
		case !errors.Is(err, errUnanswered):
			return err
		}
	}
	return nil
}

// decline tells the server that the address is not free: a broadcast from nobody,
// since the client must not use the address (RFC 2131, table 5).
func (x *exchange) decline(lease Lease) error {
	m := clientMessage(dhcpv4.MessageTypeDecline, x.xid, x.cfg.HardwareAddr, x.cfg.ClientID)
	m.Options[dhcpv4.OptionRequestedIPAddress.Code()] = lease.Addr.Addr().AsSlice()
	m.Options[dhcpv4.OptionServerIdentifier.Code()] = lease.Server.AsSlice()
	from := netip.AddrPortFrom(netip.IPv4Unspecified(), dhcpv4.ClientPort)
	return x.conn.send(udpFrame(x.cfg.HardwareAddr, etherBroadcast(), from, allServers(), m.ToBytes()))
}
