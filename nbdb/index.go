// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"maps"
	"slices"
	"sync"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/model"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// index finds rows by the keys of their groups, and by their names. libovsdb's cache
// can have such indexes too, but a look into one takes longer than the rest of a change.
//
// It has every row that Watch has told of, and every one that Apply has written. It may
// also have rows that are gone, or that have another key or name by now: who looks for a
// row gets it from the cache, and has to see.
type index struct {
	// tables are locked row by row. The cache as a whole is locked for as long as libovsdb
	// takes in a message, and a handler that waits for that has libovsdb drop events.
	tables map[string]*cache.RowCache

	mu    sync.Mutex
	uuids map[handle][]string // sorted
}

// handle is what rows of a table are found by: one of owner and name.
type handle struct{ table, owner, name string }

// tables are those that groups have rows in.
func tables() []string {
	return []string{
		nb.LogicalSwitchTable, nb.LogicalSwitchPortTable, nb.PortGroupTable, nb.AddressSetTable, nb.ACLTable, nb.QoSTable,
		nb.LogicalRouterTable, nb.LogicalRouterPortTable, nb.LogicalRouterPolicyTable,
	}
}

// newIndex has the rows of a cache, and follows them.
func newIndex(c *cache.TableCache) *index {
	x := &index{tables: map[string]*cache.RowCache{}, uuids: map[handle][]string{}}
	for _, table := range tables() {
		x.tables[table] = c.Table(table)
	}
	c.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc: x.add,
		UpdateFunc: func(table string, before, after model.Model) {
			if slices.Equal(handles(table, before), handles(table, after)) {
				return
			}
			x.add(table, after)
			x.remove(table, before)
		},
		DeleteFunc: x.remove,
	})
	for table, rows := range x.tables {
		for _, row := range rows.RowsShallow() {
			x.add(table, row)
		}
	}
	return x
}

// handles are what a row is found by.
func handles(table string, row model.Model) []handle {
	var out []handle
	if owner := owner(row); owner != "" {
		out = append(out, handle{table: table, owner: owner})
	}
	if name := nameOf(row); name != "" {
		out = append(out, handle{table: table, name: name})
	}
	return out
}

// nameOf is the name of a row, or its id in a table without names.
func nameOf(row model.Model) string {
	switch r := row.(type) {
	case interface{ GetName() string }:
		return r.GetName()
	case interface{ GetExternalIDs() map[string]string }:
		return rowID(r.GetExternalIDs())
	}
	return ""
}

func uuidOf(row model.Model) string {
	if r, ok := row.(interface{ GetUUID() string }); ok {
		return r.GetUUID()
	}
	return ""
}

func (x *index) add(table string, row model.Model) {
	x.put(uuidOf(row), handles(table, row)...)
}

func (x *index) put(uuid string, handles ...handle) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range handles {
		if i, there := slices.BinarySearch(x.uuids[h], uuid); !there {
			x.uuids[h] = slices.Insert(x.uuids[h], i, uuid)
		}
	}
}

// remove takes out a row as it was. What the cache has of it by now stays: it may be
// newer than the event, and there already.
func (x *index) remove(table string, row model.Model) {
	uuid := uuidOf(row)
	x.mu.Lock()
	defer x.mu.Unlock()
	var now []handle
	if row := x.tables[table].Row(uuid); row != nil {
		now = handles(table, row)
	}
	for _, h := range handles(table, row) {
		if slices.Contains(now, h) {
			continue
		}
		if i, there := slices.BinarySearch(x.uuids[h], uuid); there {
			x.uuids[h] = slices.Delete(x.uuids[h], i, i+1)
		}
		if len(x.uuids[h]) == 0 {
			delete(x.uuids, h)
		}
	}
}

// find returns the UUIDs of the rows of a table that have one of the handles, each once.
func (x *index) find(handles ...handle) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	for _, h := range handles {
		out = append(out, x.uuids[h]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// owners are the keys of all groups that have rows, and the fence's.
func (x *index) owners() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	owners := map[string]struct{}{}
	for h, uuids := range x.uuids {
		if h.owner != "" && slices.ContainsFunc(uuids, x.tables[h.table].HasRow) {
			owners[h.owner] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(owners))
}

// wrote adds the rows that changes have made, which the cache has by now.
func (x *index) wrote(changes []Change) {
	for _, c := range changes {
		putWritten(x, c.Switches)
		putWritten(x, c.Ports)
		putWritten(x, c.PortGroups)
		putWritten(x, c.AddressSets)
		putWritten(x, c.ACLs)
		putWritten(x, c.QoS)
		putWritten(x, c.Routers)
		putWritten(x, c.RouterPorts)
		putWritten(x, c.RouterPolicies)
	}
}

func putWritten[T row[T]](x *index, edits []Edit[T]) {
	for _, e := range edits {
		if e.Want != nil {
			id := (*e.Want).identity()
			x.put(id.uuid, handle{table: id.table, owner: id.owner}, handle{table: id.table, name: id.name})
		}
	}
}
