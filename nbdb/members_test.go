// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMembersCount(t *testing.T) {
	m := NewMembers("a", "b")
	m.Add("a")
	m.Remove("a")
	if !m.Has("a") || m.Len() != 2 {
		t.Errorf("after one of two Adds is taken back: a is there: %v, %d elements, want 2", m.Has("a"), m.Len())
	}
	m.Remove("a")
	m.Remove("a")
	m.Remove("never")
	m.Add("a")
	if !m.Has("a") || m.Len() != 2 {
		t.Errorf("Removes in vain count: a is there: %v, %d elements, want 2", m.Has("a"), m.Len())
	}
	if d := cmp.Diff([]string{"a", "b"}, slices.Sorted(m.All())); d != "" {
		t.Errorf("elements (-want +got):\n%s", d)
	}
	var none *Members
	if none.Has("a") || none.Len() != 0 || len(slices.Collect(none.All())) != 0 {
		t.Error("nil Members have elements")
	}
}

// differences is what want lacks and has too much in have, as "+a -b".
func differences(want, have *Members) string {
	d := want.differ(have)
	var out []string
	for _, e := range d.added {
		out = append(out, "+"+e)
	}
	for _, e := range d.removed {
		out = append(out, "-"+e)
	}
	return strings.Join(out, " ")
}

func TestMembersDiffer(t *testing.T) {
	want, have := NewMembers("a", "b"), NewMembers("b", "c")
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"as a whole", func() {}, "+a -c"},
		{"not written", func() {}, "+a -c"},
		{"half of it is written", func() { have.Add("a") }, "-c"},
		{"all is written", func() { have.Remove("c") }, ""},
		{"changed and changed back", func() { want.Add("d"); want.Remove("d") }, ""},
		{"one comes, one goes", func() { want.Add("d"); want.Remove("a") }, "+d -a"},
		{"taken back before it is written", func() { want.Remove("d"); want.Add("a") }, ""},
		{"the database loses one", func() { have.Remove("b") }, "+b"},
		{"and gets it back", func() { have.Add("b") }, ""},
		{"the database gets one", func() { have.Add("x") }, "-x"},
		{"which is wanted then", func() { want.Add("x") }, ""},
		{"another session", func() { have = NewMembers("a", "y") }, "+b +x -y"},
		{"another who wants the row", func() { want = NewMembers("z") }, "+z -a -y"},
	}
	for _, s := range steps {
		s.do()
		if got := differences(want, have); got != s.want {
			t.Errorf("%s: %q, want %q", s.what, got, s.want)
		}
	}
	if got := differences(want, nil); got != "+z" {
		t.Errorf("new row: %q, want +z", got)
	}
	if got := differences(nil, have); got != "" {
		t.Errorf("column that is left alone: %q", got)
	}
}

// Two that want the same row take turns, and neither misses what happens in the
// other's.
func TestMembersTwoWants(t *testing.T) {
	a, b, have := NewMembers("x"), NewMembers("x"), NewMembers("x")
	for range 3 {
		for _, want := range []*Members{a, b} {
			if got := differences(want, have); got != "" {
				t.Errorf("in step: %q", got)
			}
		}
	}
	have.Add("y")
	for _, want := range []*Members{a, b, a} {
		if got := differences(want, have); got != "-y" {
			t.Errorf("%q, want -y", got)
		}
	}
}

// What an element costs doesn't grow with the set: nothing but touched elements
// is looked at.
func TestMembersLookAtTouched(t *testing.T) {
	want, have := NewMembers("a", "b", "c"), NewMembers("a", "b", "c")
	differences(want, have)
	want.Add("d")
	if len(want.touched) != 1 || len(have.touched) != 0 {
		t.Errorf("%d and %d elements are touched, want 1 and 0", len(want.touched), len(have.touched))
	}
	have.Add("d")
	differences(want, have)
	if len(want.touched) != 0 || len(have.touched) != 0 {
		t.Errorf("%d and %d elements are still touched", len(want.touched), len(have.touched))
	}
}
