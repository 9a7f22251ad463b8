// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package sbdb

import (
	"context"
	"fmt"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/ovsdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/sb"
)

// Binding is where a logical port is bound: a row of table Port_Binding.
type Binding struct {
	// Chassis and Hostname are the chassis' that has bound the port, "" when
	// none has. A port can be up without: up is not looked at.
	Chassis, Hostname string
}

// Bound reports whether a chassis has the port.
func (b Binding) Bound() bool { return b.Chassis != "" }

// On reports whether the chassis that has the port goes by this name, as
// requested-chassis of ovn-nb(5) names one.
func (b Binding) On(chassis string) bool {
	return b.Bound() && (b.Chassis == chassis || b.Hostname == chassis)
}

// bindingTables are what is monitored: ports with one pair in their
// external_ids, and the names of all chassis.
func bindingTables(key, value string) []client.MonitorOption {
	p, c := &sb.PortBinding{}, &sb.Chassis{}
	ours := model.Condition{Field: &p.ExternalIDs, Function: libovsdb.ConditionIncludes, Value: map[string]string{key: value}}
	return []client.MonitorOption{
		client.WithConditionalTable(p, []model.Condition{ours}, &p.LogicalPort, &p.Chassis, &p.ExternalIDs),
		client.WithTable(c, &c.Name, &c.Hostname),
	}
}

// Binding is the binding of a logical port. It is known only while there is a
// session with the database, and once OVN has heard of the port.
func (v *View) Binding(port string) (b Binding, known bool) {
	v.mu.Lock()
	s := v.session
	v.mu.Unlock()
	if s == nil {
		return Binding{}, false
	}
	rows, err := s.Cache().Table(sb.PortBindingTable).RowsByCondition([]libovsdb.Condition{
		libovsdb.NewCondition("logical_port", libovsdb.ConditionEqual, port),
	})
	if err != nil || len(rows) == 0 {
		return Binding{}, false
	}
	for _, row := range rows {
		if id := row.(*sb.PortBinding).Chassis; id != nil {
			// A port can be seen before its chassis, which comes with a change of
			// its own.
			c, ok := s.Cache().Table(sb.ChassisTable).Row(*id).(*sb.Chassis)
			if !ok {
				return Binding{}, false
			}
			b = Binding{Chassis: c.Name, Hostname: c.Hostname}
		}
	}
	return b, true
}

// serveBindings makes a session the view's until ctx ends.
func (v *View) serveBindings(ctx context.Context, s *ovsdb.Session, synced func(), bound func(map[string]string)) error {
	tell := func(row model.Model) {
		if p, ok := row.(*sb.PortBinding); ok {
			bound(p.ExternalIDs)
		}
	}
	s.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc: func(_ string, row model.Model) { tell(row) },
		UpdateFunc: func(_ string, before, after model.Model) {
			tell(before)
			tell(after)
		},
		DeleteFunc: func(_ string, row model.Model) { tell(row) },
	})
	defer v.use(&v.session, s)()
	synced()
	<-ctx.Done()
	return fmt.Errorf("bindings: %w", ctx.Err())
}
