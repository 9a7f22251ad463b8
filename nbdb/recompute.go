// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"slices"

	"github.com/google/uuid"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// recomputeKey is the key of a switch's external_ids whose value is another after
// each change of ACLs.
const recomputeKey = "ovn-dhcp-ipam/recompute"

// recompute has ovn-northd start over when ACLs change. OVN 25.03 leaves a new port
// out of its switch's multicast groups if it hears of the port and of a changed ACL
// at once, be it from two transactions: no broadcast reaches that port then. The
// change of a switch it never handles incrementally.
func (s *Session) recompute(changes []Change) []operation {
	rules := func(c Change) bool { return len(c.ACLs) > 0 }
	switches := func(c Change) bool { return len(c.Switches) > 0 }
	if !slices.ContainsFunc(changes, rules) || slices.ContainsFunc(changes, switches) {
		return nil
	}
	for _, row := range s.session.Cache().Table(nb.LogicalSwitchTable).RowsShallow() {
		if !isGroup(owner(row)) {
			continue
		}
		sw := row.(*nb.LogicalSwitch)
		return []operation{{
			what: "update " + nb.LogicalSwitchTable + " " + sw.Name,
			Operation: libovsdb.Operation{
				Op:    libovsdb.OperationMutate,
				Table: nb.LogicalSwitchTable,
				Where: byUUID(sw.UUID),
				Mutations: []libovsdb.Mutation{
					*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationDelete, set(recomputeKey)),
					*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationInsert, ovsMap(map[string]string{recomputeKey: uuid.NewString()})),
				},
			},
		}}
	}
	return nil
}
