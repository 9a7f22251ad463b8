// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"maps"
	"slices"

	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// operation is one operation of a transaction and what it is for.
type operation struct {
	libovsdb.Operation
	what string
	// lost is the error when this operation, a wait, is in vain; nil for an
	// ErrRefused.
	lost error
}

// operations are the transaction that makes the changes. Rows are addressed by
// UUID only. Checks come first, since they are of the state before; then
// switches, since ports need them.
func operations(changes []Change) []operation {
	var checks, switches, ports, removals []operation
	attach := map[string][]string{} // ports by switch, all UUIDs
	for _, c := range changes {
		for _, e := range c.Switches {
			if e.Want == nil {
				checks = append(checks, waitEmpty(e.Have, c.Ports))
				removals = append(removals, deleteSwitch(e.Have))
				continue
			}
			switches = append(switches, write(nb.LogicalSwitchTable, e.Want.UUID, e.Want.Name, e.Have == nil, e.columns)...)
		}
		for _, e := range c.Ports {
			if e.Want == nil {
				ports = append(ports, detach(e.Have))
				continue
			}
			ports = append(ports, write(nb.LogicalSwitchPortTable, e.Want.UUID, e.Want.Name, e.Have == nil, e.columns)...)
			switchUUID := c.switchUUID[e.Want.Switch]
			switch {
			case moves(c.Key, e):
				ports = append(ports, detach(e.Have))
				fallthrough
			case e.Have == nil:
				attach[switchUUID] = append(attach[switchUUID], e.Want.UUID)
			case attaches(c.Key, e):
				checks = append(checks, waitAttached(switchUUID, e.Want))
			}
		}
	}
	for _, switchUUID := range slices.Sorted(maps.Keys(attach)) {
		ports = append(ports, operation{
			what: "attach new ports to a switch",
			Operation: libovsdb.Operation{
				Op:        libovsdb.OperationMutate,
				Table:     nb.LogicalSwitchTable,
				Where:     byUUID(switchUUID),
				Mutations: []libovsdb.Mutation{*libovsdb.NewMutation("ports", libovsdb.MutateOperationInsert, uuidSet(attach[switchUUID]...))},
			},
		})
	}
	return slices.Concat(checks, switches, ports, removals)
}

// write inserts a row, or changes one.
func write(table, uuid, name string, insert bool, c columns) []operation {
	op := libovsdb.Operation{Table: table}
	if insert {
		op.Op, op.UUID, op.Row = libovsdb.OperationInsert, uuid, maps.Clone(c.values)
		for _, m := range c.mutations {
			op.Row[m.Column] = m.Value
		}
		return []operation{{Operation: op, what: "insert " + table + " " + name}}
	}
	var ops []operation
	op.Where = byUUID(uuid)
	if len(c.values) > 0 {
		update := op
		update.Op, update.Row = libovsdb.OperationUpdate, c.values
		ops = append(ops, operation{Operation: update, what: "update " + table + " " + name})
	}
	if len(c.mutations) > 0 {
		mutate := op
		mutate.Op, mutate.Mutations = libovsdb.OperationMutate, c.mutations
		ops = append(ops, operation{Operation: mutate, what: "update " + table + " " + name})
	}
	return ops
}

// detach takes a port off its switch, whichever that is. The server removes
// ports that no switch has.
func detach(p *Port) operation {
	return operation{
		what: "detach port " + p.Name,
		Operation: libovsdb.Operation{
			Op:        libovsdb.OperationMutate,
			Table:     nb.LogicalSwitchTable,
			Where:     []libovsdb.Condition{libovsdb.NewCondition("ports", libovsdb.ConditionIncludes, uuidSet(p.UUID))},
			Mutations: []libovsdb.Mutation{*libovsdb.NewMutation("ports", libovsdb.MutateOperationDelete, uuidSet(p.UUID))},
		},
	}
}

func deleteSwitch(s *Switch) operation {
	return operation{
		what:      "delete switch " + s.Name,
		Operation: libovsdb.Operation{Op: libovsdb.OperationDelete, Table: nb.LogicalSwitchTable, Where: byUUID(s.UUID)},
	}
}

// waitEmpty refuses the transaction when the switch has other ports than those
// that go with it: they would be removed with it, whosever they are.
func waitEmpty(s *Switch, ports []Edit[Port]) operation {
	var leaving []string
	for _, e := range ports {
		if e.Want == nil {
			leaving = append(leaving, e.Have.UUID)
		}
	}
	return operation{
		what: "make sure that switch " + s.Name + " has no other ports",
		Operation: libovsdb.Operation{
			Op:      libovsdb.OperationWait,
			Table:   nb.LogicalSwitchTable,
			Timeout: new(int),
			Where:   byUUID(s.UUID),
			Columns: []string{"ports"},
			Until:   string(libovsdb.WaitConditionEqual),
			Rows:    []libovsdb.Row{{"ports": uuidSet(leaving...)}},
		},
	}
}

// waitAttached refuses the transaction when a port to adopt is not on the
// switch: it would have to be taken off somebody else's.
func waitAttached(switchUUID string, p *Port) operation {
	return operation{
		what: "make sure that port " + p.Name + ", which exists, is on switch " + p.Switch,
		Operation: libovsdb.Operation{
			Op:      libovsdb.OperationWait,
			Table:   nb.LogicalSwitchTable,
			Timeout: new(int),
			Where:   append(byUUID(switchUUID), libovsdb.NewCondition("ports", libovsdb.ConditionIncludes, uuidSet(p.UUID))),
			Columns: []string{"name"},
			Until:   string(libovsdb.WaitConditionEqual),
			Rows:    []libovsdb.Row{{"name": p.Switch}},
		},
	}
}

func byUUID(uuid string) []libovsdb.Condition {
	return []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: uuid})}
}

func uuidSet(uuids ...string) libovsdb.OvsSet {
	s := set[libovsdb.UUID]()
	for _, u := range uuids {
		s.GoSet = append(s.GoSet, libovsdb.UUID{GoUUID: u})
	}
	return s
}
