// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"fmt"
	"slices"

	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Rows are the rows of a group, and, as Diff needs them, the rows that have the
// names of wanted ones and of those that they are on. Members are the same from
// call to call, and each call brings them up to date.
func (s *Session) Rows(key string, want Rows) (rows Rows, err error) {
	s.mirrors.Lock()
	defer s.mirrors.Unlock()
	on := func(a ACL) string { return a.On }
	switches := slices.Concat(
		names(want.Switches), pick(want.Ports, func(p Port) string { return p.Switch }),
		pick(want.ACLs, on), pick(want.QoS, func(q QoS) string { return q.Switch }),
	)
	routers := slices.Concat(
		names(want.Routers), pick(want.RouterPorts, func(p RouterPort) string { return p.Router }),
		pick(want.RouterPolicies, func(p RouterPolicy) string { return p.Router }),
	)
	groups := slices.Concat(names(want.PortGroups), pick(want.ACLs, on))

	q := query{session: s, key: key}
	rows.Switches = read(&q, nb.LogicalSwitchTable, byNames(switches), switchFromModel)
	rows.Ports = read(&q, nb.LogicalSwitchPortTable, byNames(names(want.Ports)), portFromModel)
	rows.PortGroups = read(&q, nb.PortGroupTable, byNames(groups), s.portGroupFromModel)
	rows.AddressSets = read(&q, nb.AddressSetTable, byNames(names(want.AddressSets)), addressSetFromModel)
	rows.ACLs = read(&q, nb.ACLTable, byIDs(pick(want.ACLs, func(a ACL) map[string]string { return a.ExternalIDs })), aclFromModel)
	rows.QoS = read(&q, nb.QoSTable, byIDs(pick(want.QoS, func(q QoS) map[string]string { return q.ExternalIDs })), qosFromModel)
	rows.Routers = read(&q, nb.LogicalRouterTable, byNames(routers), routerFromModel)
	rows.RouterPorts = read(&q, nb.LogicalRouterPortTable, byNames(names(want.RouterPorts)), routerPortFromModel)
	rows.RouterPolicies = read(&q, nb.LogicalRouterPolicyTable,
		byIDs(pick(want.RouterPolicies, func(p RouterPolicy) map[string]string { return p.ExternalIDs })), routerPolicyFromModel)
	if q.err != nil {
		return Rows{}, q.err
	}
	return rows, nil
}

// query reads the rows of a group from several tables. It stops at the first
// error.
type query struct {
	session *Session
	key     string
	err     error
}

// read returns each row once that the group owns or that meets one of the
// conditions, all of which an index answers.
func read[M model.Model, T any](q *query, table string, anyOf []libovsdb.Condition, fromModel func(M) T) []T {
	var rows []T
	seen := map[string]bool{}
	if q.session.spread.has(q.key, table) {
		anyOf = append(anyOf, byKey(OwnerKey, q.key))
	}
	for _, condition := range anyOf {
		if q.err != nil {
			return nil
		}
		found, err := q.session.session.Cache().Table(table).RowsByCondition([]libovsdb.Condition{condition})
		if err != nil {
			q.err = fmt.Errorf("find rows of %s: %w", table, err)
		}
		for uuid, m := range found {
			if !seen[uuid] {
				seen[uuid] = true
				rows = append(rows, fromModel(m.(M)))
			}
		}
	}
	return rows
}

func pick[T, V any](rows []T, value func(T) V) []V {
	var values []V
	for _, r := range rows {
		values = append(values, value(r))
	}
	return values
}

func names[T row[T]](rows []T) []string {
	return pick(rows, func(r T) string { return r.identity().name })
}

func byNames(names []string) []libovsdb.Condition {
	slices.Sort(names)
	return pick(slices.Compact(names), byName)
}

func byName(name string) libovsdb.Condition {
	return libovsdb.NewCondition("name", libovsdb.ConditionEqual, name)
}

// byIDs finds rows that have external_ids instead of names.
func byIDs(externalIDs []map[string]string) []libovsdb.Condition {
	return pick(externalIDs, func(ids map[string]string) libovsdb.Condition {
		if ids[IDKey] != "" {
			return byKey(IDKey, ids[IDKey])
		}
		return byKey(OwnIDKey, ids[OwnIDKey])
	})
}

func byKey(key, value string) libovsdb.Condition {
	return libovsdb.NewCondition("external_ids", libovsdb.ConditionIncludes, ovsMap(map[string]string{key: value}))
}

func addressSetFromModel(m *addressSetModel) AddressSet {
	a := AddressSet{UUID: m.UUID, Name: m.Name, ExternalIDs: m.ExternalIDs, Addresses: m.mirror.look()}
	a.Owner = takeOwner(a.ExternalIDs)
	return a
}

func (s *Session) portGroupFromModel(m *portGroupModel) PortGroup {
	g := PortGroup{UUID: m.UUID, Name: m.Name, ExternalIDs: m.ExternalIDs, Ports: m.mirror.lookUp(s.portName)}
	g.Owner = takeOwner(g.ExternalIDs)
	return g
}

func (s *Session) portName(uuid string) (string, bool) {
	row, ok := s.session.Cache().Table(nb.LogicalSwitchPortTable).Row(uuid).(*nb.LogicalSwitchPort)
	if !ok {
		return "", false
	}
	return row.Name, true
}

func (s *Session) portUUID(name string) (string, bool) {
	uuid, row, err := s.session.Cache().Table(nb.LogicalSwitchPortTable).RowByModel(&nb.LogicalSwitchPort{Name: name})
	return uuid, err == nil && row != nil
}
