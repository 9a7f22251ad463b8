// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestKeeperAsksForNothing: a client that asks for no option in particular does so in a
// later process, too.
func TestKeeperAsksForNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		c := client()
		c.Config.Request = []uint8{}
		lease, err := s.k.Acquire(s.t.Context(), "a", c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.restart()
		s.until(lease.Renew.Add(time.Minute))
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range s.sent {
			if f.dhcp != nil && f.dhcp.Options.Has(dhcpv4.OptionParameterRequestList) {
				s.t.Errorf("%s with option 55", f.kind())
			}
		}
		if len(s.sent) < 3 {
			s.t.Errorf("%d frames", len(s.sent))
		}
	})
}

// TestKeeperRemembers: in a later process a client still says of itself what its caller
// had it say, and is as careful, when it renews its lease and when it needs another one.
func TestKeeperRemembers(t *testing.T) {
	onStage(t, func(s *stage) {
		c := client()
		c.Config.ClientID = []byte("\x00box/net/net1")
		c.Config.Options = map[uint8][]byte{60: []byte("vendor"), 77: []byte("\x04user"), 224: {0, 0xff}}
		c.Config.Request = []uint8{1, 3, 51}
		c.Config.Probe = true
		lease, err := s.k.Acquire(s.t.Context(), "a", c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.restart()
		s.took()
		want := dhcpv4.Options{
			53: {3}, 57: {0x05, 0x78}, 55: c.Config.Request, 61: c.Config.ClientID, 12: []byte(c.Config.HostName),
			60: c.Config.Options[60], 77: c.Config.Options[77], 224: c.Config.Options[224],
		}
		said := func(kind string) {
			s.t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			i := slices.IndexFunc(s.sent, func(f timed) bool { return f.dhcp != nil && f.kind() == kind })
			if i < 0 {
				s.t.Fatalf("no %s", kind)
			}
			if diff := cmp.Diff(want, s.sent[i].dhcp.Options); diff != "" {
				s.t.Errorf("options of %s (-want +got):\n%s", kind, diff)
			}
		}
		s.until(lease.Renew.Add(time.Minute))
		said("renew")

		renewed, _ := s.k.Lease("a")
		s.serve(silent)
		s.until(renewed.Expires)
		s.serve(func(f sent) [][]byte { return honest(f) })
		s.until(renewed.Expires.Add(time.Minute))
		want[53], want[50] = []byte{1}, leasedIP.AsSlice()
		said("discover 192.0.2.77")
		s.mu.Lock()
		defer s.mu.Unlock()
		asked := 0
		for _, f := range s.sent {
			// RFC 5227, 1.1: a probe is a request by one who has no address.
			if f.dhcp == nil && bytes.Equal(f.frame[28:32], []byte{0, 0, 0, 0}) && bytes.Equal(f.frame[38:42], leasedIP.AsSlice()) {
				asked++
			}
		}
		if asked != probes {
			s.t.Errorf("asked %d times who uses the address, want %d", asked, probes)
		}
	})
}
