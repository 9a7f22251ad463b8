// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

var (
	farServerIP = netip.MustParseAddr("203.0.113.67")
	gatewayIP   = netip.MustParseAddr("192.0.2.254")
)

// offSubnet answers as a server on another subnet does, by way of a relay: what comes is
// from the relay at serverHW, and names the server itself.
func offSubnet(f sent) [][]byte {
	return honest(f, option(dhcpv4.OptionServerIdentifier, farServerIP.AsSlice()...), option(dhcpv4.OptionRouter, gatewayIP.AsSlice()...))
}

// hops forgets what was sent and returns it: whom ARP asked for, and to which server's
// address and by which station's a DHCP message went.
func (s *stage) hops() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hops []string
	for _, f := range s.sent {
		if f.dhcp == nil {
			hops = append(hops, "who has "+netip.AddrFrom4([4]byte(f.frame[38:42])).String())
			continue
		}
		to, by := netip.AddrFrom4([4]byte(f.frame[30:34])), net.HardwareAddr(f.frame[:6])
		hops = append(hops, f.dhcp.MessageType().String()+" to "+to.String()+" by "+by.String())
		if !bytes.Equal(f.frame[26:30], f.dhcp.ClientIPAddr.To4()) {
			s.t.Errorf("%v is not from the leased address: % x", f.dhcp.MessageType(), f.frame[:34])
		}
	}
	s.sent = nil
	return hops
}

// TestKeeperUnconfirmed: a RELEASE without a sign that it has left is sent by another way,
// if there is one, and else is done.
func TestKeeperUnconfirmed(t *testing.T) {
	busy := errors.New("not now")
	for name, other := range map[string]error{"sent by another way": nil, "no other way": ErrNoOtherWay, "not now": busy} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				asked := 0
				s.stop()
				s.cfg.SendRelease = func(context.Context, string, Lease) error { asked++; return other }
				s.start()
				s.serve(offSubnet) // by way of a gateway that doesn't answer ARP
				s.acquire("a")
				err := s.k.Release(s.t.Context(), "a")
				if errors.Is(err, ErrPending) != (other == busy) || asked != 1 {
					t.Errorf("asked for another way %d times, error %v", asked, err)
				}
				if kept, pending := s.k.Keys(); len(kept) > 0 || len(pending) > 0 != (other == busy) {
					t.Errorf("kept %v, pending %v", kept, pending)
				}
			})
		})
	}
}

// TestKeeperOffSubnet: what is for a server on another subnet goes to the gateway. If that
// doesn't answer ARP, it goes to where the lease came from, the relay.
func TestKeeperOffSubnet(t *testing.T) {
	ask := "who has " + gatewayIP.String()
	for name, test := range map[string]struct {
		answers        []netip.Addr
		renew, release []string
	}{
		"by the gateway": {
			answers: []netip.Addr{gatewayIP},
			renew:   []string{ask, "REQUEST to 203.0.113.67 by " + hopHW.String()},
			release: []string{ask, "RELEASE to 203.0.113.67 by " + hopHW.String(), ask},
		},
		"silent gateway": {
			renew:   []string{ask, ask, ask, ask, "REQUEST to 203.0.113.67 by " + serverHW.String()},
			release: []string{ask, ask, ask, ask, "RELEASE to 203.0.113.67 by " + serverHW.String()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.owned = test.answers
				s.serve(offSubnet)
				lease := s.acquire("a")
				s.hops()
				s.until(lease.Renew.Add(time.Minute))
				if diff := cmp.Diff(test.renew, s.hops()); diff != "" {
					t.Errorf("to renew (-want +got):\n%s", diff)
				}
				if renewed, _ := s.k.Lease("a"); !renewed.Acquired.After(lease.Acquired) || renewed.Server != farServerIP {
					t.Errorf("lease of %v from %v, acquired %v", renewed.Addr, renewed.Server, renewed.Acquired)
				}
				if err := s.k.Release(s.t.Context(), "a"); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(test.release, s.hops()); diff != "" {
					t.Errorf("to release (-want +got):\n%s", diff)
				}
			})
		})
	}
}
