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
}

func (c columns) empty() bool {
	return len(c.values) == 0 && len(c.mutations) == 0
}

func (s Switch) columns(want Switch) columns {
	c := columns{values: libovsdb.Row{}}
	if s.Name != want.Name {
		c.values["name"] = want.Name
	}
	c.mutateMap("external_ids", s.externalIDs(), want.externalIDs())
	return c
}

func (p Port) columns(want Port) columns {
	c := columns{values: libovsdb.Row{}}
	if p.Name != want.Name {
		c.values["name"] = want.Name
	}
	if p.Type != want.Type {
		c.values["type"] = want.Type
	}
	if !sameSet(p.Addresses, want.Addresses) {
		c.values["addresses"] = set(want.Addresses...)
	}
	if !sameSet(p.PortSecurity, want.PortSecurity) {
		c.values["port_security"] = set(want.PortSecurity...)
	}
	if p.TagRequest != want.TagRequest {
		c.values["tag_request"] = set[int]()
		if want.TagRequest != 0 {
			c.values["tag_request"] = set(want.TagRequest)
		}
	}
	if p.DHCPv4Options != want.DHCPv4Options {
		c.values["dhcpv4_options"] = set[libovsdb.UUID]()
		if want.DHCPv4Options != "" {
			c.values["dhcpv4_options"] = set(libovsdb.UUID{GoUUID: want.DHCPv4Options})
		}
	}
	c.mutateMap("options", p.Options, want.Options)
	c.mutateMap("external_ids", p.externalIDs(), want.externalIDs())
	return c
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

func set[T any](elements ...T) libovsdb.OvsSet {
	s := libovsdb.OvsSet{GoSet: []any{}}
	for _, e := range elements {
		s.GoSet = append(s.GoSet, e)
	}
	return s
}

func ovsMap(m map[string]string) libovsdb.OvsMap {
	out := libovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range m {
		out.GoMap[k] = v
	}
	return out
}
