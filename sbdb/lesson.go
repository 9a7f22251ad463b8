// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package sbdb

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/ovsdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/sb"
)

// Lesson is what a learner was taught: a row of table MAC_Binding. Anybody whom
// the learner hears can have said it, of himself or of somebody else.
type Lesson struct {
	// UUID is the row's.
	UUID string
	// MAC is in the form of net.HardwareAddr.String.
	MAC string
	IP  netip.Addr
	// Time is when OVN recorded it, by the clock of the chassis; zero when it
	// did not say.
	Time time.Time
}

// lessonTables are what is monitored for learners, one condition for each, of
// which a row meets any.
func lessonTables(routerPorts []string) []client.MonitorOption {
	b := &sb.MACBinding{}
	var ours []model.Condition
	for _, name := range routerPorts {
		ours = append(ours, model.Condition{Field: &b.LogicalPort, Function: libovsdb.ConditionEqual, Value: name})
	}
	return []client.MonitorOption{
		client.WithConditionalTable(b, ours, &b.LogicalPort, &b.IP, &b.MAC, &b.Timestamp),
	}
}

// lesson reads a row; it is false for one that is not well formed.
func lesson(row *sb.MACBinding) (Lesson, bool) {
	ip, err := netip.ParseAddr(row.IP)
	if err != nil {
		return Lesson{}, false
	}
	mac, err := net.ParseMAC(row.MAC)
	if err != nil {
		return Lesson{}, false
	}
	l := Lesson{UUID: row.UUID, MAC: mac.String(), IP: ip}
	if row.Timestamp > 0 {
		l.Time = time.UnixMilli(int64(row.Timestamp))
	}
	return l, true
}

// Lessons are what a learner, named by its router port, has of a MAC address (in
// the form of net.HardwareAddr.String), in no order; none while there is no
// session with the database.
func (v *View) Lessons(routerPort, mac string) []Lesson {
	v.mu.Lock()
	s := v.lessons
	_, learns := slices.BinarySearch(v.learners, routerPort)
	v.mu.Unlock()
	if s == nil || !learns {
		return nil
	}
	rows, err := s.Cache().Table(sb.MACBindingTable).RowsByCondition([]libovsdb.Condition{
		libovsdb.NewCondition("mac", libovsdb.ConditionEqual, mac),
	})
	if err != nil {
		return nil
	}
	var lessons []Lesson
	for _, row := range rows {
		row := row.(*sb.MACBinding)
		if l, ok := lesson(row); ok && row.LogicalPort == routerPort {
			lessons = append(lessons, l)
		}
	}
	return lessons
}

// Unlearn removes rows: the same lesson again then is an event again, which OVN
// would not tell of a row that it has. It must only be asked for rows that
// Lessons gave. Rows that are gone already are no error.
func (v *View) Unlearn(ctx context.Context, lessons ...Lesson) error {
	v.mu.Lock()
	s := v.lessons
	v.mu.Unlock()
	if s == nil {
		return fmt.Errorf("remove rows of MAC_Binding: %w", ovsdb.ErrEnded)
	}
	var ops []libovsdb.Operation
	for _, l := range lessons {
		ops = append(ops, libovsdb.Operation{
			Op:    libovsdb.OperationDelete,
			Table: sb.MACBindingTable,
			Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: l.UUID})},
		})
	}
	if len(ops) == 0 {
		return nil
	}
	if err := s.Commit(ctx, ops...); err != nil {
		return fmt.Errorf("remove rows of MAC_Binding: %w", err)
	}
	return nil
}

// serveLessons makes a session the view's until ctx ends.
func (v *View) serveLessons(ctx context.Context, s *ovsdb.Session, taught func(routerPort, mac string)) error {
	tell := func(row model.Model) {
		if b, ok := row.(*sb.MACBinding); ok {
			taught(b.LogicalPort, b.MAC)
		}
	}
	defer v.use(&v.lessons, s)()
	s.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc: func(_ string, row model.Model) { tell(row) },
		// A row has one address and whoever claimed it last.
		UpdateFunc: func(_ string, _, after model.Model) { tell(after) },
		DeleteFunc: func(_ string, row model.Model) { tell(row) },
	})
	for _, row := range s.Cache().Table(sb.MACBindingTable).Rows() {
		tell(row)
	}
	<-ctx.Done()
	return fmt.Errorf("learned addresses: %w", ctx.Err())
}
