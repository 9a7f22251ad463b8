// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"maps"
	"slices"

	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// transaction gathers what is to be done, so that each row is written by one
// operation however many changes touch it; a second one is needed only where
// columns are replaced and others mutated. Rows are addressed by UUID.
type transaction struct {
	checks, detached, removals []operation

	rows  map[string]*write // by UUID
	order []*write
}

// write is what happens to one row.
type write struct {
	table, uuid, name string
	insert            bool
	values            libovsdb.Row
	mutations         []libovsdb.Mutation // of maps
	sets              map[string][]any    // elements to insert, by column
	without           map[string][]any    // to delete
}

func (t *transaction) row(id identity) *write {
	w := t.rows[id.uuid]
	if w == nil {
		w = &write{table: id.table, uuid: id.uuid, name: id.name, sets: map[string][]any{}, without: map[string][]any{}}
		t.rows[id.uuid] = w
		t.order = append(t.order, w)
	}
	return w
}

// members adds elements to a column that is a set, and removes others.
func (w *write) members(column string, add, remove []any) {
	gather(w.sets, column, add)
	gather(w.without, column, remove)
}

func gather(sets map[string][]any, column string, elements []any) {
	if len(elements) > 0 {
		sets[column] = append(sets[column], elements...)
	}
}

// remove deletes a row, unless it is of a table whose rows the server deletes
// when nothing refers to them.
func (t *transaction) remove(id identity) {
	switch id.table {
	case nb.LogicalSwitchTable, nb.PortGroupTable, nb.AddressSetTable, nb.LogicalRouterTable:
		t.removals = append(t.removals, operation{
			what:      "delete " + id.table + " " + id.name,
			Operation: libovsdb.Operation{Op: libovsdb.OperationDelete, Table: id.table, Where: byUUID(id.uuid)},
		})
	}
}

func (t *transaction) place(p placement) {
	switch p.action {
	case attach:
		t.row(p.parent).members(p.column.name, []any{uuidAtom(p.child.uuid)}, nil)
	case verify:
		t.checks = append(t.checks, waitPlaced(p))
	case detach:
		for _, c := range p.columns {
			t.detached = append(t.detached, operation{
				what: "detach " + noun(p.child.table) + " " + p.child.name,
				Operation: libovsdb.Operation{
					Op:        libovsdb.OperationMutate,
					Table:     c.table,
					Where:     []libovsdb.Condition{libovsdb.NewCondition(c.name, libovsdb.ConditionIncludes, uuidSet(p.child.uuid))},
					Mutations: []libovsdb.Mutation{*libovsdb.NewMutation(c.name, libovsdb.MutateOperationDelete, uuidSet(p.child.uuid))},
				},
			})
		}
	}
}

// waitPlaced refuses the transaction when a row is not in its place.
func waitPlaced(p placement) operation {
	return operation{
		what: "make sure that " + noun(p.child.table) + " " + p.child.name + ", which exists, is on " + noun(p.table) + " " + p.parent.name,
		Operation: libovsdb.Operation{
			Op:      libovsdb.OperationWait,
			Table:   p.table,
			Timeout: new(int),
			Where:   append(byUUID(p.parent.uuid), libovsdb.NewCondition(p.column.name, libovsdb.ConditionIncludes, uuidSet(p.child.uuid))),
			Columns: []string{"name"},
			Until:   string(libovsdb.WaitConditionEqual),
			Rows:    []libovsdb.Row{{"name": p.parent.name}},
		},
	}
}

// operations begin with checks, since they are of the state before. What a row
// refers to may be inserted after it.
func (t *transaction) operations() []operation {
	ops := slices.Concat(t.checks, t.detached)
	for _, w := range t.order {
		ops = append(ops, w.operations()...)
	}
	return append(ops, t.removals...)
}

func (w *write) operations() []operation {
	op := libovsdb.Operation{Table: w.table}
	if w.insert {
		op.Op, op.UUID, op.Row = libovsdb.OperationInsert, w.uuid, libovsdb.Row{}
		maps.Copy(op.Row, w.values)
		for _, m := range w.mutations {
			op.Row[m.Column] = m.Value
		}
		for column, elements := range w.sets {
			op.Row[column] = set(elements...)
		}
		return []operation{{Operation: op, what: "insert " + w.table + " " + w.name}}
	}
	var ops []operation
	op.Where = byUUID(w.uuid)
	what := "update " + w.table + " " + w.name
	if len(w.values) > 0 {
		update := op
		update.Op, update.Row = libovsdb.OperationUpdate, w.values
		ops = append(ops, operation{Operation: update, what: what})
	}
	mutations := slices.Clone(w.mutations)
	for _, column := range slices.Sorted(maps.Keys(w.without)) {
		mutations = append(mutations, *libovsdb.NewMutation(column, libovsdb.MutateOperationDelete, set(w.without[column]...)))
	}
	for _, column := range slices.Sorted(maps.Keys(w.sets)) {
		mutations = append(mutations, *libovsdb.NewMutation(column, libovsdb.MutateOperationInsert, set(w.sets[column]...)))
	}
	if len(mutations) > 0 {
		mutate := op
		mutate.Op, mutate.Mutations = libovsdb.OperationMutate, mutations
		ops = append(ops, operation{Operation: mutate, what: what})
	}
	return ops
}

func atoms(elements []string) []any {
	var out []any
	for _, e := range elements {
		out = append(out, e)
	}
	return out
}
