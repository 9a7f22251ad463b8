// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLeaseJSON(t *testing.T) {
	for name, test := range map[string]struct {
		lease Lease
		json  string
	}{
		"all": {
			granted(func(l *Lease) {
				l.Gateway = netip.MustParseAddr("192.0.2.1")
				l.Routes = []Route{{Dst: netip.MustParsePrefix("198.51.100.0/24"), Gateway: netip.MustParseAddr("192.0.2.9")}, {Dst: netip.MustParsePrefix("10.0.0.0/8")}}
				l.DNS = []netip.Addr{netip.MustParseAddr("192.0.2.5")}
				l.Domain, l.Search, l.MTU = "example.org", []string{"a.example.org"}, 1400
				l.Acquired = l.Acquired.Add(123456789)
			}),
			`{"addr":"192.0.2.77/24","gateway":"192.0.2.1",` +
				`"routes":[{"dst":"198.51.100.0/24","gateway":"192.0.2.9"},{"dst":"10.0.0.0/8"}],` +
				`"dns":["192.0.2.5"],"domain":"example.org","search":["a.example.org"],"mtu":1400,"server":"192.0.2.1",` +
				`"host_name":"web-0","acquired":"2026-08-01T12:00:00.123456789Z","renew":"2026-08-01T12:30:00Z",` +
				`"rebind":"2026-08-01T12:52:30Z","expires":"2026-08-01T13:00:00Z",` +
				`"server_hw":"02:00:00:00:00:01","hardware_addr":"0a:58:0a:01:02:03","client_id":"010a580a010203"}`,
		},
		"little": {
			granted(func(l *Lease) {
				l.HostName, l.ServerHW = "", nil
				l.Renew, l.Rebind, l.Expires = time.Time{}, time.Time{}, time.Time{}
			}),
			`{"addr":"192.0.2.77/24","server":"192.0.2.1","acquired":"2026-08-01T12:00:00Z",` +
				`"hardware_addr":"0a:58:0a:01:02:03","client_id":"010a580a010203"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(test.lease)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.json, string(b)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
			var back Lease
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.lease, back, compareAddrs); diff != "" {
				t.Errorf("lease (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLeaseJSONDamaged(t *testing.T) {
	for _, s := range []string{
		`{"addr":"192.0.2.77"}`,
		`{"addr":"192.0.2.77/24","hardware_addr":"x"}`,
		`{"addr":"192.0.2.77/24","hardware_addr":"0a:58:0a:01:02:03","client_id":"0"}`,
		`{"addr":"192.0.2.77/24","hardware_addr":"0a:58:0a:01:02:03","client_id":"","server_hw":"x"}`,
	} {
		l := granted(nil)
		if err := json.Unmarshal([]byte(s), &l); err == nil {
			t.Errorf("no error for %s", s)
		}
		if diff := cmp.Diff(granted(nil), l, compareAddrs); diff != "" {
			t.Errorf("%s changed the lease:\n%s", s, diff)
		}
	}
}

func TestLeaseSince(t *testing.T) {
	later := requestedAt.Add(time.Minute)
	want := granted(func(l *Lease) {
		l.Acquired, l.Renew, l.Rebind, l.Expires = later, l.Renew.Add(time.Minute), l.Rebind.Add(time.Minute), l.Expires.Add(time.Minute)
	})
	if diff := cmp.Diff(want, granted(nil).since(later), compareAddrs); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	forever := func(l *Lease) { l.Renew, l.Rebind, l.Expires = time.Time{}, time.Time{}, time.Time{} }
	if l := granted(forever).since(later); !l.Expires.IsZero() || !l.Renew.IsZero() || !l.Acquired.Equal(later) {
		t.Errorf("lease for ever: %v", l)
	}
}
