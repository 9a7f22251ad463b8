// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"encoding/json"
	"net/netip"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

func TestResult(t *testing.T) {
	addr := netip.MustParseAddr
	prefix := netip.MustParsePrefix
	for _, test := range []struct {
		name     string
		lease    dhcp.Lease
		priority int
		want     string
	}{
		{"address only", dhcp.Lease{Addr: prefix("10.0.0.5/24")}, 0,
			`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24"}]}`},
		{"all there is", dhcp.Lease{
			Addr: prefix("10.0.0.5/24"), Gateway: addr("10.0.0.1"),
			Routes: []dhcp.Route{{Dst: prefix("10.9.0.0/16"), Gateway: addr("10.0.0.2")}, {Dst: prefix("10.8.0.0/16")}},
			DNS:    []netip.Addr{addr("10.0.0.3"), addr("10.0.0.4")}, Domain: "example.org", Search: []string{"a.org", "b.org"},
		}, 70, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}],
			"routes":[{"dst":"10.9.0.0/16","gw":"10.0.0.2","priority":70},{"dst":"10.8.0.0/16","gw":"0.0.0.0","priority":70,"scope":253},
				{"dst":"0.0.0.0/0","gw":"10.0.0.1","priority":70}],
			"dns":{"nameservers":["10.0.0.3","10.0.0.4"],"domain":"example.org","search":["a.org","b.org"]}}`},
		{"one address as subnet", dhcp.Lease{
			Addr: prefix("10.0.0.5/32"), Gateway: addr("192.168.0.1"),
			Routes: []dhcp.Route{{Dst: prefix("10.9.0.0/16"), Gateway: addr("192.168.0.1")}},
		}, 0, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/32","gateway":"192.168.0.1"}],
			"routes":[{"dst":"192.168.0.1/32","gw":"0.0.0.0","scope":253},{"dst":"10.9.0.0/16","gw":"192.168.0.1"},{"dst":"0.0.0.0/0","gw":"192.168.0.1"}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			result := &types100.Result{CNIVersion: "1.0.0"}
			fill(result, test.lease, test.priority)
			out, err := json.Marshal(result)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
