// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"fmt"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// placeKey is the key of external_ids where a row of ours has the name of the
// row that refers to it.
const placeKey = "ovn-dhcp-ipam/on"

// place is where a row is that exists only as long as another refers to it.
type place struct {
	parent string   // name of the other row; "" if it is not known
	in     []column // the columns of which one refers to the row
}

type column struct{ table, name string }

// withPlace are external_ids as they are in the database.
func withPlace(ids map[string]string, owner, parent string) map[string]string {
	return with(withOwner(ids, owner), placeKey, parent)
}

// takePlace takes those keys out of external_ids that rows have fields for.
func takePlace(ids map[string]string) (owner, parent string) {
	parent = ids[placeKey]
	delete(ids, placeKey)
	return takeOwner(ids), parent
}

// child is a row that has a place.
type child[T any] interface {
	row[T]
	place() place
	// moved reports whether the wanted row has another place.
	moved(want T) bool
}

// placement puts a row in its place or takes it from there.
type placement struct {
	action placementAction
	child  identity
	// column and parent are where the row is to be. What is detached is
	// searched for in columns instead: where it is depends on others too.
	column
	parent  identity
	columns []column
}

type placementAction int

const (
	attach placementAction = iota
	detach
	// verify is for a row to adopt: if it is not in its place, it would have to
	// be taken from somebody else's.
	verify
)

// arrange adds the placements that the edits of one table need.
func arrange[T child[T]](c *Change, have Rows, edits []Edit[T]) error {
	for _, e := range edits {
		switch {
		case e.Want == nil:
			leave(c, *e.Have)
		case e.Have == nil:
			if err := enter(c, attach, have, *e.Want); err != nil {
				return err
			}
		case (*e.Have).identity().owner != c.Key:
			if err := enter(c, verify, have, *e.Want); err != nil {
				return err
			}
		case (*e.Have).moved(*e.Want):
			leave(c, *e.Have)
			if err := enter(c, attach, have, *e.Want); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave takes a row off its parent, unless that is to be deleted: the server
// removes what nothing refers to.
func leave[T child[T]](c *Change, row T) {
	p := row.place()
	for _, in := range p.in {
		if p.parent != "" && c.removes(in.table, p.parent) {
			return
		}
	}
	c.placements = append(c.placements, placement{action: detach, child: row.identity(), columns: p.in})
}

func enter[T child[T]](c *Change, action placementAction, have Rows, row T) error {
	p, id := row.place(), row.identity()
	var nouns []string
	for _, in := range p.in {
		if parent, ok := c.parent(have, in.table, p.parent); ok {
			c.placements = append(c.placements, placement{action: action, child: id, column: in, parent: parent})
			return nil
		}
		nouns = append(nouns, noun(in.table))
	}
	return fmt.Errorf("OVN's northbound database has no %s %s of ours for %s %s",
		strings.Join(nouns, " or "), p.parent, noun(id.table), id.name)
}

// noun is what messages call a row of a table.
func noun(table string) string {
	if table == nb.LogicalSwitchPortTable {
		return "port"
	}
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(table, "Logical_"), "_", " "))
}

// parent is the row of a name that others can be put on: one that this change
// creates or adopts, else one that is ours.
func (c *Change) parent(have Rows, table, name string) (identity, bool) {
	switch table {
	case nb.LogicalSwitchTable:
		return ours(name, c.Switches, have.Switches)
	case nb.PortGroupTable:
		return ours(name, c.PortGroups, have.PortGroups)
	default:
		return ours(name, c.Routers, have.Routers)
	}
}

func ours[T row[T]](name string, edits []Edit[T], have []T) (identity, bool) {
	for _, e := range edits {
		if e.Want != nil && (*e.Want).identity().name == name {
			return (*e.Want).identity(), true
		}
	}
	for _, h := range have {
		if id := h.identity(); id.name == name && id.owner != "" {
			return id, true
		}
	}
	return identity{}, false
}

// removes reports whether the row of a name is deleted.
func (c *Change) removes(table, name string) bool {
	switch table {
	case nb.LogicalSwitchTable:
		return removed(name, c.Switches)
	case nb.PortGroupTable:
		return removed(name, c.PortGroups)
	default:
		return removed(name, c.Routers)
	}
}

func removed[T row[T]](name string, edits []Edit[T]) bool {
	for _, e := range edits {
		if e.Want == nil && (*e.Have).identity().name == name {
			return true
		}
	}
	return false
}
