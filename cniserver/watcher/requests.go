// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// A client sends a REQUEST again after at most 64 seconds (RFC 2131, 4.1): an
	// answer that comes later answers a later one.
	requestAge = 64 * time.Second
	// A client has one exchange under way; more than that is a guest's game, and
	// costs no more memory.
	requestsKept = 8
)

// request is a REQUEST that the guest sent.
type request struct {
	xid [4]byte
	at  time.Time
	// addr is the address asked for and server the one that it is for; the zero Addr
	// if it names none.
	addr, server netip.Addr
	// clientID is nil if it has none.
	clientID []byte
}

// requests are a port's latest, the oldest first.
type requests []request

// add remembers one, in the place of an earlier one of the same transaction.
func (rs *requests) add(r request) {
	rs.remove(r.xid)
	if len(*rs) == requestsKept {
		*rs = slices.Delete(*rs, 0, 1)
	}
	*rs = append(*rs, r)
}

func (rs *requests) remove(xid [4]byte) {
	*rs = slices.DeleteFunc(*rs, func(r request) bool { return r.xid == xid })
}

// find returns the request of a transaction if it is not too old.
func (rs requests) find(now time.Time, xid [4]byte) (request, bool) {
	i := slices.IndexFunc(rs, func(r request) bool { return r.xid == xid && now.Sub(r.at) < requestAge })
	if i < 0 {
		return request{}, false
	}
	return rs[i], true
}
