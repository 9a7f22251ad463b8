// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"maps"
	"slices"

	libovsdb "github.com/ovn-org/libovsdb/ovsdb"
)

// columns are the values and the mutations that take a row from one state to
// another. Maps are mutated key by key: other programs have keys there too.
type columns struct {
	values    libovsdb.Row
	mutations []libovsdb.Mutation
	members   membership
}

// membership is what differs in a column of Members.
type membership struct{ added, removed []string }

func (c columns) empty() bool {
	return len(c.values) == 0 && len(c.mutations) == 0 && len(c.members.added) == 0 && len(c.members.removed) == 0
}

// setString is for a column that always has one value.
func (c *columns) setString(column, have, want string) {
	if have != want {
		c.values[column] = want
	}
}

func (c *columns) setInt(column string, have, want int) {
	if have != want {
		c.values[column] = want
	}
}

// setStrings is for a column that is a small set.
func (c *columns) setStrings(column string, have, want []string) {
	if !sameSet(have, want) {
		c.values[column] = set(want...)
	}
}

// setOptional is for a column with one value or none, the zero value of T.
func setOptional[T comparable](c *columns, column string, have, want T) {
	var none T
	switch {
	case have == want:
	case want == none:
		c.values[column] = set[T]()
	default:
		c.values[column] = set(want)
	}
}

// mutateMap sets the keys of want whose value differs. An insert alone would
// leave the value of a key that is there (RFC 7047, 5.1).
func (c *columns) mutateMap(column string, have, want map[string]string) {
	var stale []string
	differ := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		value, ok := have[k]
		if ok && value == want[k] {
			continue
		}
		if ok {
			stale = append(stale, k)
		}
		differ[k] = want[k]
	}
	if len(stale) > 0 {
		c.mutations = append(c.mutations, *libovsdb.NewMutation(column, libovsdb.MutateOperationDelete, set(stale...)))
	}
	if len(differ) > 0 {
		c.mutations = append(c.mutations, *libovsdb.NewMutation(column, libovsdb.MutateOperationInsert, ovsMap(differ)))
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
