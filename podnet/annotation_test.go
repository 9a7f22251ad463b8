// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var comparePlain = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

func TestEntryRoundTrip(t *testing.T) {
	expires := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	server := netip.MustParseAddr("10.1.0.2")
	full := Entry{
		MAC:      net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Addrs:    []netip.Prefix{netip.MustParsePrefix("10.1.0.7/24")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1")},
		Routes:   []Route{{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParseAddr("10.1.0.3")}},
		Role:     RoleSecondary,
		IPAMMode: IPAMTypeDHCP,
		DHCP:     &DHCPStatus{State: StateBound, Expires: &expires, Server: &server},
	}
	for name, want := range map[string]Entry{"full": full, "MAC only": {MAC: full.MAC, Role: RoleSecondary, IPAMMode: IPAMTypeDHCP}} {
		t.Run(name, func(t *testing.T) {
			n, err := Networks{}.With("ns/lan", want)
			if err != nil {
				t.Fatal(err)
			}
			if n, err = ParseNetworks(n.String()); err != nil {
				t.Fatal(err)
			}
			got, ok, err := n.Entry("ns/lan")
			if !ok || err != nil {
				t.Fatalf("ok %v, error %v", ok, err)
			}
			if diff := cmp.Diff(want, got, comparePlain); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithKeepsWhatItDoesNotKnow(t *testing.T) {
	const old = `{"default":{"ip_addresses":["10.244.0.5/24"],"mac_address":"0a:58:0a:f4:00:05","x":1},
		"ns/lan":{"ip_addresses":["10.1.0.9/24"],"ip_address":"10.1.0.9/24","mac_address":"02:00:00:00:00:01","future":{"a":[1,2]},"tunnel_id":4}}`
	n, err := ParseNetworks(old)
	if err != nil {
		t.Fatal(err)
	}
	n, err = n.With("ns/lan", Entry{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Role: RoleSecondary, IPAMMode: IPAMTypeDHCP})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"default":{"ip_addresses":["10.244.0.5/24"],"mac_address":"0a:58:0a:f4:00:05","x":1},
		"ns/lan":{"ip_addresses":null,"mac_address":"02:00:00:00:00:02","role":"secondary","ipam_mode":"dhcp","future":{"a":[1,2]},"tunnel_id":4}}`
	var gotJSON, wantJSON any
	for s, into := range map[string]*any{n.String(): &gotJSON, want: &wantJSON} {
		if err := json.Unmarshal([]byte(s), into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(wantJSON, gotJSON); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"default"}, n.Without("ns/lan").Keys()); diff != "" {
		t.Errorf("keys without the entry (-want +got):\n%s", diff)
	}
}

func TestEntryRefuses(t *testing.T) {
	for _, test := range []struct{ entry, want string }{
		{`null`, "mac_address"},
		{`"x"`, "cannot unmarshal"},
		{`{"mac_address":"zz"}`, "mac_address"},
		{`{"mac_address":"02:00:00:00:00:01","ip_addresses":["10.0.0.1"]}`, "ip_addresses"},
		{`{"mac_address":"02:00:00:00:00:01","ip_addresses":["0.0.0.0/0"]}`, "ip_addresses"},
		{`{"mac_address":"02:00:00:00:00:01","ip_addresses":["224.0.0.1/24"]}`, "ip_addresses"},
		{`{"mac_address":"02:00:00:00:00:01","ip_addresses":["255.255.255.255/24"]}`, "ip_addresses"},
		{`{"mac_address":"02:00:00:00:00:01","ip_addresses":["fd00::1/64"]}`, "ip_addresses"},
		{`{"mac_address":"02:00:00:00:00:01","gateway_ips":["x"]}`, "gateway_ips"},
	} {
		n, err := ParseNetworks(`{"ns/lan":` + test.entry + `,"ns/good":{"mac_address":"02:00:00:00:00:02"}}`)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.Entry("ns/lan"); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "ns/lan") {
			t.Errorf("%s: got error %v, want one with %q", test.entry, err, test.want)
		}
		if _, ok, err := n.Entry("ns/good"); !ok || err != nil {
			t.Errorf("%s: the entry beside it: ok %v, error %v", test.entry, ok, err)
		}
	}
}

func TestOldFieldsAreRead(t *testing.T) {
	n, err := ParseNetworks(`{"ns/lan":{"mac_address":"02:00:00:00:00:01","ip_address":"10.0.0.5/24","gateway_ip":"10.0.0.1"}}`)
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := n.Entry("ns/lan")
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Addrs) != 1 || e.Addrs[0].String() != "10.0.0.5/24" || len(e.Gateways) != 1 || e.Gateways[0].String() != "10.0.0.1" {
		t.Errorf("got %+v", e)
	}
}

func FuzzNetworks(f *testing.F) {
	f.Add(`{"ns/lan":{"mac_address":"02:00:00:00:00:01","ip_addresses":["10.0.0.5/24"],"x":[{}]},"default":null}`)
	f.Add(`{"a":1,"b":[],"c":"x"}`)
	f.Fuzz(func(t *testing.T, value string) {
		n, err := ParseNetworks(value)
		if err != nil {
			return
		}
		for _, key := range n.Keys() {
			e, ok, err := n.Entry(key)
			if !ok {
				t.Fatalf("no entry %q in %s", key, value)
			}
			if err != nil {
				continue
			}
			for _, p := range e.Addrs {
				if !p.Addr().Is4() || p.Addr().IsUnspecified() || p.Addr().IsMulticast() {
					t.Errorf("address %s out of %s", p, value)
				}
			}
		}
		changed, err := n.With("ns/new", Entry{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}})
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseNetworks(changed.String())
		if err != nil {
			t.Fatalf("%s: %v", changed, err)
		}
		if got, want := again.Without("ns/new").String(), n.Without("ns/new").String(); got != want {
			t.Errorf("other entries changed from %s to %s", want, got)
		}
	})
}
