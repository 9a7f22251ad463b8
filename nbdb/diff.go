// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Change is what brings the rows of one group from what they are to what they
// are wanted to be.
type Change struct {
	// Key is the group's key.
	Key            string
	Switches       []Edit[Switch]
	Ports          []Edit[Port]
	PortGroups     []Edit[PortGroup]
	AddressSets    []Edit[AddressSet]
	ACLs           []Edit[ACL]
	QoS            []Edit[QoS]
	Routers        []Edit[Router]
	RouterPorts    []Edit[RouterPort]
	RouterPolicies []Edit[RouterPolicy]

	placements []placement
}

// Edit is the change of one row. Have is nil for a row to insert, Want for one
// to delete. Want has the UUID that the row has or will have.
type Edit[T any] struct {
	Have, Want *T

	columns columns // what differs
}

// Members are the elements that a PortGroup or an AddressSet gets and loses,
// sorted.
func (e Edit[T]) Members() (added, removed []string) {
	return e.columns.members.added, e.columns.members.removed
}

// Empty reports whether there is nothing to do.
func (c Change) Empty() bool {
	return len(c.Switches) == 0 && len(c.Ports) == 0 && len(c.PortGroups) == 0 && len(c.AddressSets) == 0 && len(c.ACLs) == 0 &&
		len(c.QoS) == 0 && len(c.Routers) == 0 && len(c.RouterPorts) == 0 && len(c.RouterPolicies) == 0
}

// String is a dump for logs and tests: inserted rows after +, deleted ones
// after -, changed ones as they will be after ~, but of members only what
// differs.
func (c Change) String() string {
	return dumpEdits(c.Switches) + dumpEdits(c.Ports) + dumpEdits(c.PortGroups) + dumpEdits(c.AddressSets) + dumpEdits(c.ACLs) +
		dumpEdits(c.QoS) + dumpEdits(c.Routers) + dumpEdits(c.RouterPorts) + dumpEdits(c.RouterPolicies)
}

func dumpEdits[T fmt.Stringer](edits []Edit[T]) string {
	var b strings.Builder
	for _, e := range edits {
		switch {
		case e.Have == nil:
			b.WriteString("+ " + (*e.Want).String())
		case e.Want == nil:
			b.WriteString("- " + brief(*e.Have))
		default:
			b.WriteString("~ " + brief(*e.Want))
			for _, element := range e.columns.members.added {
				fmt.Fprintf(&b, "  + %q\n", element)
			}
			for _, element := range e.columns.members.removed {
				fmt.Fprintf(&b, "  - %q\n", element)
			}
		}
	}
	return b.String()
}

// brief is a dump of a row without its members.
func brief[T fmt.Stringer](row T) string {
	if r, ok := any(row).(interface{ brief() string }); ok {
		return r.brief()
	}
	return row.String()
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
// or of those that they are on. A row without owner that has a wanted row's name
// is adopted, unless NetworkKey says that it is another network's; that, and a
// row of another group, is a *ConflictError.
//
// Members are compared by what was touched; beside that, Diff changes nothing.
func Diff(key string, have, want Rows) (Change, error) {
	c := Change{Key: key}
	var errs [9]error
	c.Switches, errs[0] = diff(key, have.Switches, want.Switches)
	c.Ports, errs[1] = diff(key, have.Ports, want.Ports)
	c.PortGroups, errs[2] = diff(key, have.PortGroups, want.PortGroups)
	c.AddressSets, errs[3] = diff(key, have.AddressSets, want.AddressSets)
	c.ACLs, errs[4] = diff(key, have.ACLs, want.ACLs)
	c.QoS, errs[5] = diff(key, have.QoS, want.QoS)
	c.Routers, errs[6] = diff(key, have.Routers, want.Routers)
	c.RouterPorts, errs[7] = diff(key, have.RouterPorts, want.RouterPorts)
	c.RouterPolicies, errs[8] = diff(key, have.RouterPolicies, want.RouterPolicies)
	if err := cmp.Or(errs[:]...); err != nil {
		return Change{}, err
	}
	if err := cmp.Or(
		arrange(&c, have, c.Ports),
		arrange(&c, have, c.ACLs),
		arrange(&c, have, c.QoS),
		arrange(&c, have, c.RouterPorts),
		arrange(&c, have, c.RouterPolicies),
	); err != nil {
		return Change{}, err
	}
	return c, nil
}

// row is what the comparison needs to know of a row of any table.
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

func diff[T row[T]](key string, have, want []T) ([]Edit[T], error) {
	if len(have) == 0 && len(want) == 0 {
		return nil, nil // as most tables of most groups
	}
	byName, byUUID := map[string][]T{}, map[string]T{}
	for _, h := range slices.SortedFunc(slices.Values(have), func(a, b T) int {
		return strings.Compare(a.identity().uuid, b.identity().uuid)
	}) {
		id := h.identity()
		byName[id.name] = append(byName[id.name], h)
		byUUID[id.uuid] = h
	}
	var edits []Edit[T]
	kept := map[string]bool{} // by UUID
	for _, w := range want {
		id := w.identity()
		if id.name == "" {
			return nil, fmt.Errorf("a row of %s that is wanted for %s has neither name nor id", id.table, key)
		}
		h, err := counterpart(key, byName[id.name], id)
		if err != nil {
			return nil, err
		}
		uuid := rowUUID(id.table, id.name)
		// One that was renamed behind our back: deleting and inserting one UUID
		// in one transaction is not possible.
		if renamed, ok := byUUID[uuid]; ok && renamed.identity().owner == key && (h == nil || (*h).identity().owner != key) {
			h = &renamed
		}
		if h == nil {
			var none T
			created := w.become(uuid, key)
			edits = append(edits, Edit[T]{Want: &created, columns: none.columns(created)})
			continue
		}
		uuid = (*h).identity().uuid
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

// counterpart is the row that is to become the wanted one, of those that have
// its name: the group's own, else one that can be adopted; nil when there is
// none.
func counterpart[T row[T]](key string, have []T, want identity) (*T, error) {
	var adoptable *T
	var conflict error
	for _, h := range have {
		id := h.identity()
		switch {
		case id.owner == key:
			return &h, nil
		case id.owner != "":
			conflict = &ConflictError{want.table, want.name, "another group of rows, " + id.owner}
		case id.network != "" && id.network != want.network:
			conflict = &ConflictError{want.table, want.name, fmt.Sprintf("network %q", id.network)}
		case adoptable == nil:
			adoptable = &h
		}
	}
	if conflict != nil {
		return nil, conflict
	}
	return adoptable, nil
}
