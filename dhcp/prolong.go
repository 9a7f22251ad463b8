// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// prolong asks once for more time for a lease, and returns the lease as the server
// has prolonged it, be it with another address. Its error is errUnanswered if no
// answer came within wait, and a *refusal if the address must no longer be used.
//
// RFC 2131, 4.3.2 and table 4: the address is in ciaddr, and neither in option 50
// nor is a server named in option 54. The message leaves from the leased address.
// In RENEWING it goes to the lease's server alone, whose answer alone counts; in
// REBINDING to all, and any server may answer, and be the lease's server from then
// on. The servers answer to the leased address, so that no broadcast flag is needed.
func prolong(ctx context.Context, c conn, cfg Config, lease Lease, rebinding bool, wait time.Duration) (Lease, error) {
	x := newExchange(c, cfg)
	// "Seconds elapsed since client began address acquisition or renewal process."
	x.secs = uint16(min(max(time.Since(lease.Renew), 0)/time.Second, 0xffff))
	m := x.message(dhcpv4.MessageTypeRequest)
	m.ClientIPAddr = lease.Addr.Addr().AsSlice()
	from := netip.AddrPortFrom(lease.Addr.Addr(), dhcpv4.ClientPort)
	to, hopHW := allServers(), etherBroadcast()
	q := question{client: x.cfg, xid: x.xid, requested: true, held: lease.Addr, moves: !cfg.Probe}
	if !rebinding {
		q.server, to = lease.Server, netip.AddrPortFrom(lease.Server, dhcpv4.ServerPort)
		var err error
		hop := nextHop(lease)
		hopHW, err = resolve(ctx, c, lease.HardwareAddr, lease, hop, arpTries)
		if errors.Is(err, errUnanswered) && len(lease.ServerHW) == 6 {
			hopHW, err = lease.ServerHW, nil
		}
		if err != nil {
			return Lease{}, fmt.Errorf("resolving next hop %s: %w", hop, err)
		}
	}
	q.sent = time.Now()
	return x.try(ctx, q, udpFrame(lease.HardwareAddr, hopHW, from, to, m.ToBytes()), wait)
}
