// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"slices"

	"github.com/ovn-org/libovsdb/model"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Rows are the rows of a group, and, as Diff needs them, the rows that have the
// names of wanted ones and of those that they are on. Members are the same from
// call to call, and each call brings them up to date.
func (s *Session) Rows(key string, want Rows) Rows {
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
	return Rows{
		Switches:       read(s, nb.LogicalSwitchTable, key, switches, switchFromModel),
		Ports:          read(s, nb.LogicalSwitchPortTable, key, names(want.Ports), portFromModel),
		PortGroups:     read(s, nb.PortGroupTable, key, groups, s.portGroupFromModel),
		AddressSets:    read(s, nb.AddressSetTable, key, names(want.AddressSets), addressSetFromModel),
		ACLs:           read(s, nb.ACLTable, key, names(want.ACLs), aclFromModel),
		QoS:            read(s, nb.QoSTable, key, names(want.QoS), qosFromModel),
		Routers:        read(s, nb.LogicalRouterTable, key, routers, routerFromModel),
		RouterPorts:    read(s, nb.LogicalRouterPortTable, key, names(want.RouterPorts), routerPortFromModel),
		RouterPolicies: read(s, nb.LogicalRouterPolicyTable, key, names(want.RouterPolicies), routerPolicyFromModel),
	}
}

// read returns each row once that the group owns or that has one of the names, which
// read puts into order.
func read[M model.Model, T row[T]](s *Session, table, key string, names []string, fromModel func(M) T) []T {
	slices.Sort(names)
	names = slices.Compact(names)
	handles := []handle{{table: table, owner: key}}
	for _, name := range names {
		handles = append(handles, handle{table: table, name: name})
	}
	var rows []T
	for _, uuid := range s.index.find(handles...) {
		m, ok := s.index.tables[table].Row(uuid).(M)
		if !ok {
			continue // gone
		}
		r := fromModel(m)
		if _, named := slices.BinarySearch(names, r.identity().name); named || r.identity().owner == key {
			rows = append(rows, r)
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

// portUUID goes by the table's own index, which is never behind the cache: portName
// knows of a port as soon as that does.
func (s *Session) portUUID(name string) (string, bool) {
	uuid, row, err := s.session.Cache().Table(nb.LogicalSwitchPortTable).RowByModel(&nb.LogicalSwitchPort{Name: name})
	return uuid, err == nil && row != nil
}
