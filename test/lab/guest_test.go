// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseGuestEvents(t *testing.T) {
	got, err := parseGuestEvents("udhcpc: started\nguest: deconfig  \nguest: bound 10.1.192.5/24 10.1.192.1\r\nguest: nak\nguest: renew 10.1.192.5/24 10.1.19")
	if err != nil {
		t.Fatal(err)
	}
	want := []GuestEvent{
		{Kind: "deconfig"},
		{Kind: "bound", Addr: netip.MustParsePrefix("10.1.192.5/24"), Server: netip.MustParseAddr("10.1.192.1")},
		{Kind: "nak"},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, file := range []string{"guest: bound\n", "guest: bound x 10.0.0.1\n", "guest: renew 10.0.0.1/24 x\n"} {
		if _, err := parseGuestEvents(file); err == nil || !strings.Contains(err.Error(), file[:len(file)-1]) {
			t.Errorf("%q: got error %v", file, err)
		}
	}
}
