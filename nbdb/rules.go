// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"cmp"
	"maps"

	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Keys of external_ids that tell rows apart that have no name of their own:
// ACLs, QoS rules and router policies. A wanted one has one of these keys.
const (
	// IDKey is where OVN-Kubernetes keeps it.
	IDKey = "k8s.ovn.org/id"
	// OwnIDKey is for what OVN-Kubernetes must not take for its own.
	OwnIDKey = "ovn-dhcp-ipam/id"
)

// ACL is a row of table ACL. In a wanted row, a key that Options and
// ExternalIDs don't hold is left as it is.
type ACL struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner string
	// On is the name of the port group or the switch that has the ACL.
	On string
	// Name has at most 63 bytes; "" is none.
	Name string
	// Direction is "from-lport" or "to-lport".
	Direction string
	Priority  int
	Match     string
	// Action is "allow", "allow-related", "drop" and so on.
	Action      string
	Options     map[string]string
	ExternalIDs map[string]string // has IDKey or OwnIDKey
}

// QoS is a row of table QoS. In a wanted row, a key that ExternalIDs doesn't
// hold is left as it is.
type QoS struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner string
	// Switch is the name of the switch that has the rule.
	Switch string
	// Direction is "from-lport" or "to-lport".
	Direction string
	Priority  int
	Match     string
	// Action has key "dscp", Bandwidth "rate" in kbps and "burst" in kbit.
	// They are written as a whole.
	Action, Bandwidth map[string]int
	ExternalIDs       map[string]string // has IDKey or OwnIDKey
}

func (a ACL) String() string {
	return dump(nb.ACLTable, rowID(a.ExternalIDs), map[string]any{
		"(on)":         a.On,
		"name":         a.Name,
		"direction":    a.Direction,
		"priority":     a.Priority,
		"match":        a.Match,
		"action":       a.Action,
		"options":      a.Options,
		"external_ids": withOwner(a.ExternalIDs, a.Owner),
	})
}

func (q QoS) String() string {
	return dump(nb.QoSTable, rowID(q.ExternalIDs), map[string]any{
		"(switch)":     q.Switch,
		"direction":    q.Direction,
		"priority":     q.Priority,
		"match":        q.Match,
		"action":       q.Action,
		"bandwidth":    q.Bandwidth,
		"external_ids": withOwner(q.ExternalIDs, q.Owner),
	})
}

// rowID is what a row without name is known by.
func rowID(ids map[string]string) string {
	return cmp.Or(ids[IDKey], ids[OwnIDKey])
}

func (a ACL) externalIDs() map[string]string { return withPlace(a.ExternalIDs, a.Owner, a.On) }
func (q QoS) externalIDs() map[string]string { return withPlace(q.ExternalIDs, q.Owner, q.Switch) }

func (a ACL) identity() identity {
	return identity{nb.ACLTable, rowID(a.ExternalIDs), a.UUID, a.Owner, a.ExternalIDs[NetworkKey]}
}

func (q QoS) identity() identity {
	return identity{nb.QoSTable, rowID(q.ExternalIDs), q.UUID, q.Owner, q.ExternalIDs[NetworkKey]}
}

func (a ACL) become(uuid, owner string) ACL {
	a.UUID, a.Owner = uuid, owner
	return a
}

func (q QoS) become(uuid, owner string) QoS {
	q.UUID, q.Owner = uuid, owner
	return q
}

func (a ACL) place() place {
	return place{a.On, []column{{nb.PortGroupTable, "acls"}, {nb.LogicalSwitchTable, "acls"}}}
}

func (q QoS) place() place {
	return place{q.Switch, []column{{nb.LogicalSwitchTable, "qos_rules"}}}
}

func (a ACL) moved(want ACL) bool { return a.On != want.On }
func (q QoS) moved(want QoS) bool { return q.Switch != want.Switch }

func (a ACL) columns(want ACL) columns {
	c := columns{values: libovsdb.Row{}}
	setOptional(&c, "name", a.Name, want.Name)
	c.setString("direction", a.Direction, want.Direction)
	c.setInt("priority", a.Priority, want.Priority)
	c.setString("match", a.Match, want.Match)
	c.setString("action", a.Action, want.Action)
	c.mutateMap("options", a.Options, want.Options)
	c.mutateMap("external_ids", a.externalIDs(), want.externalIDs())
	return c
}

func (q QoS) columns(want QoS) columns {
	c := columns{values: libovsdb.Row{}}
	c.setString("direction", q.Direction, want.Direction)
	c.setInt("priority", q.Priority, want.Priority)
	c.setString("match", q.Match, want.Match)
	if !maps.Equal(q.Action, want.Action) {
		c.values["action"] = ovsMap(want.Action)
	}
	if !maps.Equal(q.Bandwidth, want.Bandwidth) {
		c.values["bandwidth"] = ovsMap(want.Bandwidth)
	}
	c.mutateMap("external_ids", q.externalIDs(), want.externalIDs())
	return c
}

func aclFromModel(m *nb.ACL) ACL {
	a := ACL{
		UUID:        m.UUID,
		Direction:   m.Direction,
		Priority:    m.Priority,
		Match:       m.Match,
		Action:      m.Action,
		Options:     m.Options,
		ExternalIDs: m.ExternalIDs,
	}
	if m.Name != nil {
		a.Name = *m.Name
	}
	a.Owner, a.On = takePlace(a.ExternalIDs)
	return a
}

func qosFromModel(m *nb.QoS) QoS {
	q := QoS{
		UUID:        m.UUID,
		Direction:   m.Direction,
		Priority:    m.Priority,
		Match:       m.Match,
		Action:      m.Action,
		Bandwidth:   m.Bandwidth,
		ExternalIDs: m.ExternalIDs,
	}
	q.Owner, q.Switch = takePlace(q.ExternalIDs)
	return q
}
