// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// roll has the members of those rows that have members, the port groups and the
// address sets. Each port says what it belongs to, so a change of one costs
// nothing of all the others.
type roll struct {
	rows map[string]*rollRow // by name; none without members
	of   map[key][]seat
}

// rollRow is a row that has members.
type rollRow struct {
	group   key // of the row
	name    string
	members *nbdb.Members
}

// membership is one element of one row.
type membership struct {
	group   key // of the row
	row     string
	element string
}

// seat is a membership as it is kept: there are many of each row.
type seat struct {
	row     *rollRow
	element string
}

func newRoll() roll { return roll{rows: map[string]*rollRow{}, of: map[key][]seat{}} }

// row is the members of a row.
func (r *roll) row(name string) *nbdb.Members {
	if row := r.rows[name]; row != nil {
		return row.members
	}
	return nbdb.NewMembers() // not kept: the row may be no longer wanted
}

// portGroups are the groups of rows that a port is an element of itself, and not
// its addresses.
func (r *roll) portGroups(k key) []key {
	var out []key
	port := podnet.PortName(k.nadKey, k.namespace, k.pod)
	for _, p := range r.of[k] {
		if p.element == port {
			out = append(out, p.row.group)
		}
	}
	return out
}

// enrol makes what a port belongs to what it says, and returns the groups of the
// rows that change.
func (r *roll) enrol(k key, memberships []membership) (changed []key) {
	before := make(map[seat]bool, len(r.of[k]))
	for _, p := range r.of[k] {
		before[p] = true
	}
	now := make([]seat, 0, len(memberships))
	said := make(map[seat]bool, len(memberships))
	for _, m := range memberships {
		if r.rows[m.row] == nil {
			r.rows[m.row] = &rollRow{m.group, m.row, nbdb.NewMembers()}
		}
		p := seat{r.rows[m.row], m.element}
		if said[p] {
			continue
		}
		now, said[p] = append(now, p), true
		if !before[p] {
			p.row.members.Add(p.element)
			changed = append(changed, m.group)
		}
	}
	for p := range before {
		if said[p] {
			continue
		}
		if p.row.members.Remove(p.element); p.row.members.Len() == 0 {
			delete(r.rows, p.row.name)
		}
		changed = append(changed, p.row.group)
	}
	if r.of[k] = now; len(now) == 0 {
		delete(r.of, k)
	}
	return changed
}
