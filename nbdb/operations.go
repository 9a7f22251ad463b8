// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
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

// operations are the transaction that makes the changes, and missing the names
// of ports that groups are to have and that don't exist, with the keys of these
// groups. portUUID finds a port in the database.
func operations(changes []Change, portUUID func(name string) (string, bool)) (ops []operation, missing map[string][]string) {
	t := transaction{rows: map[string]*write{}}
	ports := map[string]string{}
	for _, c := range changes {
		for _, e := range c.Ports {
			if e.Want != nil {
				ports[e.Want.Name] = e.Want.UUID
			}
		}
	}
	find := func(name string) (string, bool) {
		if uuid, ok := ports[name]; ok {
			return uuid, true
		}
		return portUUID(name)
	}
	missing = map[string][]string{}
	for _, c := range changes {
		for _, e := range c.Switches {
			if e.Want == nil {
				t.checks = append(t.checks, waitEmpty(e.Have, c.Ports))
			}
		}
		writeRows(&t, c.Switches)
		writeRows(&t, c.Ports)
		writeRows(&t, c.PortGroups)
		writeRows(&t, c.AddressSets)
		writeRows(&t, c.ACLs)
		writeRows(&t, c.QoS)
		writeRows(&t, c.Routers)
		writeRows(&t, c.RouterPorts)
		writeRows(&t, c.RouterPolicies)
		for _, e := range c.AddressSets {
			if e.Want != nil {
				m := e.columns.members
				t.row(e.Want.identity()).members("addresses", atoms(m.added), atoms(m.removed))
			}
		}
		for _, e := range c.PortGroups {
			if e.Want != nil {
				for _, name := range writePorts(&t, e, find) {
					missing[name] = append(missing[name], c.Key)
				}
			}
		}
		for _, p := range c.placements {
			t.place(p)
		}
	}
	return t.operations(), missing
}

// writePorts changes the ports of a group and returns the names of those to add
// that don't exist. One to remove that is gone the server has removed itself.
func writePorts(t *transaction, e Edit[PortGroup], find func(name string) (string, bool)) (missing []string) {
	var added, removed []any
	for _, name := range e.columns.members.added {
		if uuid, ok := find(name); ok {
			added = append(added, uuidAtom(uuid))
		} else {
			missing = append(missing, name)
		}
	}
	for _, name := range e.columns.members.removed {
		if uuid, ok := find(name); ok {
			removed = append(removed, uuidAtom(uuid))
		}
	}
	t.row(e.Want.identity()).members("ports", added, removed)
	return missing
}

func writeRows[T row[T]](t *transaction, edits []Edit[T]) {
	for _, e := range edits {
		if e.Want == nil {
			t.remove((*e.Have).identity())
			continue
		}
		w := t.row((*e.Want).identity())
		w.insert = e.Have == nil
		w.values, w.mutations = e.columns.values, e.columns.mutations
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

func byName(name string) []libovsdb.Condition {
	return []libovsdb.Condition{libovsdb.NewCondition("name", libovsdb.ConditionEqual, name)}
}

func byUUID(uuid string) []libovsdb.Condition {
	return []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, uuidAtom(uuid))}
}
