// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Change is what brings the rows of one group from what they are to what they
// are wanted to be.
type Change struct {
	// Key is the group's key.
	Key      string
	Switches []Edit[Switch]
	Ports    []Edit[Port]

	switchUUID map[string]string // by name, for the ports that get a switch
}

// Edit is the change of one row. Have is nil for a row to insert, Want for one
// to delete. Want has the UUID that the row has or will have.
type Edit[T any] struct {
	Have, Want *T

	columns columns // what differs
}

// Empty reports whether there is nothing to do.
func (c Change) Empty() bool {
	return len(c.Switches) == 0 && len(c.Ports) == 0
}

// String is a dump for logs and tests: inserted rows after +, deleted ones
// after -, changed ones as they will be after ~.
func (c Change) String() string {
	return dumpEdits(c.Switches) + dumpEdits(c.Ports)
}

func dumpEdits[T fmt.Stringer](edits []Edit[T]) string {
	var b strings.Builder
	for _, e := range edits {
		switch {
		case e.Have == nil:
			b.WriteString("+ " + (*e.Want).String())
		case e.Want == nil:
			b.WriteString("- " + (*e.Have).String())
		default:
			b.WriteString("~ " + (*e.Want).String())
		}
	}
	return b.String()
}

// ConflictError is a wanted row whose name another row has that must not be
// changed: it belongs to another group, or to another network.
type ConflictError struct {
	Table, Name string
	// Holder says whose the row is.
	Holder string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s %s exists in OVN's northbound database and belongs to %s", e.Table, e.Name, e.Holder)
}

// Diff compares the rows of one group with those that are wanted. have holds
// the rows that the group owns, and whatever rows have the names of wanted ones
// or of their switches. A row without owner that has a wanted row's name is
// adopted, unless NetworkKey says that it is another network's; that, and a row
// of another group, is a *ConflictError.
func Diff(key string, have, want Rows) (Change, error) {
	c := Change{Key: key, switchUUID: map[string]string{}}
	var err error
	if c.Switches, err = diff(key, have.Switches, want.Switches); err != nil {
		return Change{}, err
	}
	if c.Ports, err = diff(key, have.Ports, want.Ports); err != nil {
		return Change{}, err
	}
	for _, e := range c.Ports {
		if e.Want == nil || !attaches(key, e) {
			continue
		}
		id, ok := c.findSwitch(e.Want.Switch, have.Switches)
		if !ok {
			return Change{}, fmt.Errorf("OVN's northbound database has no switch %s of ours for port %s", e.Want.Switch, e.Want.Name)
		}
		c.switchUUID[e.Want.Switch] = id
	}
	return c, nil
}

// attaches reports whether an edit has to see to it that the port is on its
// switch. A port of ours is on the switch of the network that it names.
func attaches(key string, e Edit[Port]) bool {
	return e.Have == nil || e.Have.Owner != key || moves(key, e)
}

// moves reports whether a port of ours goes from one network to another.
func moves(key string, e Edit[Port]) bool {
	return e.Have != nil && e.Have.Owner == key && network(e.Have.ExternalIDs) != network(e.Want.ExternalIDs)
}

func network(ids map[string]string) string {
	return cmp.Or(ids[NetworkKey], ids[ownNetworkKey])
}

// findSwitch is the UUID of the switch that a port of ours belongs to: one that
// this change creates or adopts, else one that is ours.
func (c *Change) findSwitch(name string, have []Switch) (string, bool) {
	for _, e := range c.Switches {
		if e.Want != nil && e.Want.Name == name {
			return e.Want.UUID, true
		}
	}
	for _, s := range have {
		if s.Name == name && s.Owner != "" {
			return s.UUID, true
		}
	}
	return "", false
}

// row is what the comparison needs to know of a row of either table.
type row[T any] interface {
	identity() identity
	// become is the row with another UUID and owner.
	become(uuid, owner string) T
	// columns are what differs in want.
	columns(want T) columns
}

type identity struct {
	table, name, uuid, owner, network string
}

func (s Switch) identity() identity {
	return identity{nb.LogicalSwitchTable, s.Name, s.UUID, s.Owner, s.ExternalIDs[NetworkKey]}
}

func (p Port) identity() identity {
	return identity{nb.LogicalSwitchPortTable, p.Name, p.UUID, p.Owner, p.ExternalIDs[NetworkKey]}
}

func (s Switch) become(uuid, owner string) Switch {
	s.UUID, s.Owner = uuid, owner
	return s
}

func (p Port) become(uuid, owner string) Port {
	p.UUID, p.Owner = uuid, owner
	return p
}

func diff[T row[T]](key string, have, want []T) ([]Edit[T], error) {
	var edits []Edit[T]
	kept := map[string]bool{} // by UUID
	for _, w := range want {
		id := w.identity()
		h, err := counterpart(key, have, id)
		if err != nil {
			return nil, err
		}
		if h == nil {
			var none T
			created := w.become(rowUUID(id.table, id.name), key)
			edits = append(edits, Edit[T]{Want: &created, columns: none.columns(created)})
			continue
		}
		uuid := (*h).identity().uuid
		kept[uuid] = true
		changed := w.become(uuid, key)
		if differ := (*h).columns(changed); !differ.empty() {
			edits = append(edits, Edit[T]{Have: h, Want: &changed, columns: differ})
		}
	}
	for _, h := range have {
		if id := h.identity(); id.owner == key && !kept[id.uuid] {
			edits = append(edits, Edit[T]{Have: &h})
		}
	}
	return edits, nil
}

// counterpart is the row that is to become the wanted one: the group's own of
// that name, else the group's own that was renamed behind our back (deleting
// and inserting one UUID in one transaction is not possible), else one that can
// be adopted; nil when there is none.
func counterpart[T row[T]](key string, have []T, want identity) (*T, error) {
	var own, renamed, adoptable *T
	var conflict *ConflictError
	for _, h := range slices.SortedFunc(slices.Values(have), func(a, b T) int {
		return strings.Compare(a.identity().uuid, b.identity().uuid)
	}) {
		id := h.identity()
		switch {
		case id.owner == key && id.name == want.name:
			own = &h
		case id.owner == key && id.uuid == rowUUID(want.table, want.name):
			renamed = &h
		case id.name != want.name:
		case id.owner != "":
			conflict = &ConflictError{want.table, want.name, "another group of rows, " + id.owner}
		case id.network != "" && id.network != want.network:
			conflict = &ConflictError{want.table, want.name, fmt.Sprintf("network %q", id.network)}
		case adoptable == nil:
			adoptable = &h
		}
	}
	switch {
	case own != nil:
		return own, nil
	case conflict != nil:
		return nil, conflict
	case renamed != nil:
		return renamed, nil
	}
	return adoptable, nil
}
