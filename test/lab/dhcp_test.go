// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseLeases(t *testing.T) {
	mac := net.HardwareAddr{0x0a, 0x58, 0x0a, 1, 0xc0, 1}
	for _, tt := range []struct {
		name, file string
		want       []DHCPLease
		wantErr    string
	}{
		{name: "none"},
		{
			name: "two",
			file: "1796000000 0a:58:0a:01:c0:01 10.1.192.108 web-0 01:0a:58:0a:01:c0:01\n0 0a:58:0a:01:c0:01 10.1.192.109 * *\n",
			want: []DHCPLease{
				{Expiry: time.Unix(1796000000, 0), MAC: mac, Addr: netip.MustParseAddr("10.1.192.108"), Hostname: "web-0", ClientID: append([]byte{1}, mac...)},
				{MAC: mac, Addr: netip.MustParseAddr("10.1.192.109")},
			},
		},
		{name: "fields", file: "0 0a:58:0a:01:c0:01 10.1.192.109 *\n", wantErr: "4 fields"},
		{name: "expiry", file: "soon 0a:58:0a:01:c0:01 10.1.192.109 * *\n", wantErr: `"soon"`},
		{name: "mac", file: "0 0a:58 10.1.192.109 * *\n", wantErr: "0a:58"},
		{name: "address", file: "0 0a:58:0a:01:c0:01 10.1.192 * *\n", wantErr: "10.1.192"},
		{name: "client identifier", file: "0 0a:58:0a:01:c0:01 10.1.192.109 * x\n", wantErr: "client identifier"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseLeases(tt.file)
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}
