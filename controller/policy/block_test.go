// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func TestCut(t *testing.T) {
	tests := []struct {
		cidr   string
		except []string
		want   []string
	}{
		{"10.0.0.0/8", nil, []string{"10.0.0.0/8"}},
		{"0.0.0.0/0", nil, []string{"0.0.0.0/0"}},
		{"10.0.0.0/8", []string{"10.0.0.0/9"}, []string{"10.128.0.0/9"}},
		{"10.0.0.0/30", []string{"10.0.0.1/32"}, []string{"10.0.0.0/32", "10.0.0.2/31"}},
		{"10.0.0.0/30", []string{"10.0.0.3/32", "10.0.0.0/32"}, []string{"10.0.0.1/32", "10.0.0.2/32"}},
		{"10.0.0.0/8", []string{"10.0.0.0/9", "10.0.1.0/24", "10.0.0.0/9"}, []string{"10.128.0.0/9"}},
		{"0.0.0.0/0", []string{"0.0.0.0/1"}, []string{"128.0.0.0/1"}},
		{"0.0.0.0/0", []string{"128.0.0.0/1"}, []string{"0.0.0.0/1"}},
		{"255.255.255.254/31", []string{"255.255.255.255/32"}, []string{"255.255.255.254/32"}},
		{"10.0.0.0/8", []string{"10.0.0.0/9", "10.128.0.0/9"}, nil},
	}
	for _, tt := range tests {
		var except []netip.Prefix
		for _, e := range tt.except {
			except = append(except, netip.MustParsePrefix(e))
		}
		if got := texts(cut(netip.MustParsePrefix(tt.cidr), except)); !slices.Equal(got, tt.want) {
			t.Errorf("%s without %v is %v, want %v", tt.cidr, tt.except, got, tt.want)
		}
	}
}

// Every address is in just one of the prefixes, or in an exception.
func TestCutCovers(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, 0}), 24)
		var except []netip.Prefix
		for range random.IntN(6) {
			p, _ := netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(256))}).Prefix(25 + random.IntN(8))
			except = append(except, p)
		}
		in := func(prefixes []netip.Prefix, a netip.Addr) (n int) {
			for _, p := range prefixes {
				if p.Contains(a) {
					n++
				}
			}
			return n
		}
		parts := cut(cidr, slices.Clone(except))
		for i := range 256 {
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			if excepted := in(except, a) > 0; excepted && in(parts, a) != 0 || !excepted && in(parts, a) != 1 {
				t.Fatalf("%s without %v is %v: %s is in %d of them", cidr, except, parts, a, in(parts, a))
			}
		}
		if in(parts, netip.MustParseAddr("192.0.1.255"))+in(parts, netip.MustParseAddr("192.0.3.0")) != 0 {
			t.Fatalf("%s without %v is %v", cidr, except, parts)
		}
	}
}
