// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"iter"
	"maps"
	"slices"
)

// Members are the elements of a column that is a set: the addresses of an
// address set, the names of the ports of a port group. Whoever wants the row
// keeps its Members and changes them one element at a time; Diff then looks only
// at the elements that were changed, here or in the database. It looks at all of
// them the first time, and once in each session.
//
// An element counts how often it was added, since several attachments may
// contribute the same. Members are not safe for concurrent use: who changes
// wanted ones is who calls Session.Rows, Diff and Session.Apply. Those that
// Session.Rows returns belong to the session and are to be read only, until its
// next call.
//
// Nothing has to be reported back after Apply: an element is looked at until a
// Diff finds it as it is wanted.
type Members struct {
	counts map[string]int
	// touched has all elements that may differ between these and other.
	touched map[string]struct{}
	// other is what these were compared with as a whole, nil if with nothing.
	other *Members
}

// NewMembers are Members with these elements, each of them added once.
func NewMembers(elements ...string) *Members {
	m := &Members{counts: make(map[string]int, len(elements)), touched: map[string]struct{}{}}
	for _, e := range elements {
		m.Add(e)
	}
	return m
}

// Add adds an element, or adds to its count.
func (m *Members) Add(element string) {
	m.counts[element]++
	if m.counts[element] == 1 {
		m.touch(element)
	}
}

// Remove takes back one Add; without one it does nothing.
func (m *Members) Remove(element string) {
	switch m.counts[element] {
	case 0:
		return
	case 1:
		delete(m.counts, element)
		m.touch(element)
	default:
		m.counts[element]--
	}
}

// Has reports whether an element was added more often than removed. Nil Members
// have none.
func (m *Members) Has(element string) bool {
	return m != nil && m.counts[element] > 0
}

// Len is the number of different elements.
func (m *Members) Len() int {
	if m == nil {
		return 0
	}
	return len(m.counts)
}

// All are the different elements, in no order.
func (m *Members) All() iter.Seq[string] {
	if m == nil {
		return maps.Keys(map[string]int(nil))
	}
	return maps.Keys(m.counts)
}

// touch notes that an element may differ, if the rest is known not to.
func (m *Members) touch(element string) {
	if m.other != nil {
		m.touched[element] = struct{}{}
	}
}

// differ is what is missing in have and what is too much there; nothing is both
// when m is nil, which stands for a column that is left alone. Both are compared
// as a whole only if they were not compared with each other before.
func (m *Members) differ(have *Members) membership {
	if m == nil {
		return membership{}
	}
	if have == nil {
		return membership{added: slices.Sorted(m.All())}
	}
	suspects := m.touched
	if m.other != have || have.other != m {
		m.other, have.other = have, m
		suspects = map[string]struct{}{}
		for _, elements := range []*Members{m, have} {
			for e := range elements.All() {
				if m.Has(e) != have.Has(e) {
					suspects[e] = struct{}{}
				}
			}
		}
	} else {
		maps.Copy(suspects, have.touched)
	}
	// New maps, since those that were large once stay so.
	m.touched, have.touched = map[string]struct{}{}, map[string]struct{}{}
	var d membership
	for e := range suspects {
		if m.Has(e) == have.Has(e) {
			continue
		}
		m.touched[e] = struct{}{}
		if m.Has(e) {
			d.added = append(d.added, e)
		} else {
			d.removed = append(d.removed, e)
		}
	}
	slices.Sort(d.added)
	slices.Sort(d.removed)
	return d
}
