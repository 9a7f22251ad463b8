// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// roll has the members of those rows that have members, the port groups and the
// address sets. Each port says what it belongs to, so a change of one costs
// nothing of all the others.
type roll struct {
	members map[string]*nbdb.Members // by the row's name
	of      map[key]map[membership]bool
}

// membership is one element of one row.
type membership struct {
	group   key // of the row
	row     string
	element string
}

func newRoll() roll {
	return roll{members: map[string]*nbdb.Members{}, of: map[key]map[membership]bool{}}
}

// row is the members of a row.
func (r *roll) row(name string) *nbdb.Members {
	if r.members[name] == nil {
		r.members[name] = nbdb.NewMembers()
	}
	return r.members[name]
}

// enrol makes what a port belongs to what it says, and returns the groups of the
// rows that change.
func (r *roll) enrol(k key, memberships []membership) (changed []key) {
	before, now := r.of[k], make(map[membership]bool, len(memberships))
	for _, m := range memberships {
		if now[m] {
			continue
		}
		if now[m] = true; !before[m] {
			r.row(m.row).Add(m.element)
			changed = append(changed, m.group)
		}
	}
	for m := range before {
		if now[m] {
			continue
		}
		r.row(m.row).Remove(m.element)
		if r.row(m.row).Len() == 0 {
			delete(r.members, m.row) // it may be no longer wanted
		}
		changed = append(changed, m.group)
	}
	if r.of[k] = now; len(now) == 0 {
		delete(r.of, k)
	}
	return changed
}
