// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// block reads an IPBlock, and returns it as prefixes, its exceptions cut out.
// As OVN expands a negated prefix into one term for each bit, and multiplies
// those of several, exceptions in a match could cost it any number of flows.
func (r *reader) block(at *field.Path, v any) []netip.Prefix {
	var cidr netip.Prefix
	var except []netip.Prefix
	before, given := r.errors(), false
	r.fields(at, v, []child{
		{"cidr", func(at *field.Path, v any) { cidr, given = r.prefix(at, v), true }},
		{"except", func(at *field.Path, v any) {
			r.list(at, v, func(at *field.Path, v any) { except = append(except, r.prefix(at, v)) })
		}},
	})
	if !given {
		r.note(at, v, "needs cidr")
	}
	if r.errors() > before {
		return nil
	}
	for i, e := range except {
		if e.Bits() <= cidr.Bits() || !cidr.Contains(e.Addr()) {
			r.note(at.Child("except").Index(i), e.String(), fmt.Sprintf("must be a part of %s", cidr))
			return nil
		}
	}
	out := cut(cidr, except)
	r.count(at, len(out))
	return out
}

func (r *reader) prefix(at *field.Path, v any) netip.Prefix {
	s := ""
	r.text(&s)(at, v)
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		r.note(at, s, "must be an IPv4 address and the length of its prefix, as 192.0.2.0/24")
		return netip.Prefix{}
	case !p.Addr().Is4():
		r.note(at, s, "must be of IPv4: the network has no other")
		return netip.Prefix{}
	}
	return p.Masked()
}

// cut is a prefix without parts of it.
func cut(p netip.Prefix, parts []netip.Prefix) []netip.Prefix {
	if len(parts) == 0 {
		return []netip.Prefix{p}
	}
	slices.SortFunc(parts, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	first, end := span(p)
	var out []netip.Prefix
	for _, part := range parts {
		from, to := span(part)
		out = appendSpan(out, first, from)
		first = max(first, to)
	}
	return appendSpan(out, first, end)
}

// span is the first address of an IPv4 prefix, and the one behind its last.
func span(p netip.Prefix) (first, end uint64) {
	a := p.Addr().As4()
	first = uint64(binary.BigEndian.Uint32(a[:]))
	return first, first + 1<<(32-p.Bits())
}

// appendSpan appends the prefixes that the addresses from first to before end
// consist of.
func appendSpan(to []netip.Prefix, first, end uint64) []netip.Prefix {
	for first < end {
		size := min(bits.TrailingZeros64(first|1<<32), bits.Len64(end-first)-1)
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(first))
		to = append(to, netip.PrefixFrom(netip.AddrFrom4(a), 32-size))
		first += 1 << size
	}
	return to
}
