// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Router is a row of table Logical_Router. Its ports and policies are not read:
// they name their router. In a wanted row, a key that Options and ExternalIDs
// don't hold is left as it is.
type Router struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	Name string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner                string
	Options, ExternalIDs map[string]string
}

// RouterPort is a row of table Logical_Router_Port. In a wanted row, a key that
// Options and ExternalIDs don't hold is left as it is.
type RouterPort struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	Name string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner string
	// Router is the name of the port's router.
	Router string
	MAC    string
	// Networks are the port's addresses with their prefix lengths.
	Networks             []string
	Options, ExternalIDs map[string]string
}

// RouterPolicy is a row of table Logical_Router_Policy. In a wanted row, a key
// that ExternalIDs doesn't hold is left as it is.
type RouterPolicy struct {
	// UUID is the row's; a wanted row has none.
	UUID string
	// Owner is the value of OwnerKey, which ExternalIDs doesn't hold.
	Owner string
	// Router is the name of the router that has the policy.
	Router   string
	Priority int
	Match    string
	// Action is "allow", "drop" or "reroute".
	Action      string
	ExternalIDs map[string]string // has IDKey or OwnIDKey
}

func (r Router) String() string {
	return dump(nb.LogicalRouterTable, r.Name, map[string]any{"options": r.Options, "external_ids": withOwner(r.ExternalIDs, r.Owner)})
}

func (p RouterPort) String() string {
	return dump(nb.LogicalRouterPortTable, p.Name, map[string]any{
		"(router)":     p.Router,
		"mac":          p.MAC,
		"networks":     p.Networks,
		"options":      p.Options,
		"external_ids": withOwner(p.ExternalIDs, p.Owner),
	})
}

func (p RouterPolicy) String() string {
	return dump(nb.LogicalRouterPolicyTable, rowID(p.ExternalIDs), map[string]any{
		"(router)":     p.Router,
		"priority":     p.Priority,
		"match":        p.Match,
		"action":       p.Action,
		"external_ids": withOwner(p.ExternalIDs, p.Owner),
	})
}

func (p RouterPort) externalIDs() map[string]string {
	return withPlace(p.ExternalIDs, p.Owner, p.Router)
}
func (p RouterPolicy) externalIDs() map[string]string {
	return withPlace(p.ExternalIDs, p.Owner, p.Router)
}

func (r Router) identity() identity {
	return identity{nb.LogicalRouterTable, r.Name, r.UUID, r.Owner, r.ExternalIDs[NetworkKey]}
}

func (p RouterPort) identity() identity {
	return identity{nb.LogicalRouterPortTable, p.Name, p.UUID, p.Owner, p.ExternalIDs[NetworkKey]}
}

func (p RouterPolicy) identity() identity {
	return identity{nb.LogicalRouterPolicyTable, rowID(p.ExternalIDs), p.UUID, p.Owner, p.ExternalIDs[NetworkKey]}
}

func (r Router) become(uuid, owner string) Router {
	r.UUID, r.Owner = uuid, owner
	return r
}

func (p RouterPort) become(uuid, owner string) RouterPort {
	p.UUID, p.Owner = uuid, owner
	return p
}

func (p RouterPolicy) become(uuid, owner string) RouterPolicy {
	p.UUID, p.Owner = uuid, owner
	return p
}

func (p RouterPort) place() place {
	return place{p.Router, []column{{nb.LogicalRouterTable, "ports"}}}
}

func (p RouterPolicy) place() place {
	return place{p.Router, []column{{nb.LogicalRouterTable, "policies"}}}
}

func (p RouterPort) moved(want RouterPort) bool     { return p.Router != want.Router }
func (p RouterPolicy) moved(want RouterPolicy) bool { return p.Router != want.Router }

func (r Router) columns(want Router) columns {
	c := columns{values: libovsdb.Row{}}
	c.setString("name", r.Name, want.Name)
	c.mutateMap("options", r.Options, want.Options)
	c.mutateMap("external_ids", withOwner(r.ExternalIDs, r.Owner), withOwner(want.ExternalIDs, want.Owner))
	return c
}

func (p RouterPort) columns(want RouterPort) columns {
	c := columns{values: libovsdb.Row{}}
	c.setString("name", p.Name, want.Name)
	c.setString("mac", p.MAC, want.MAC)
	c.setStrings("networks", p.Networks, want.Networks)
	c.mutateMap("options", p.Options, want.Options)
	c.mutateMap("external_ids", p.externalIDs(), want.externalIDs())
	return c
}

func (p RouterPolicy) columns(want RouterPolicy) columns {
	c := columns{values: libovsdb.Row{}}
	c.setInt("priority", p.Priority, want.Priority)
	c.setString("match", p.Match, want.Match)
	c.setString("action", p.Action, want.Action)
	c.mutateMap("external_ids", p.externalIDs(), want.externalIDs())
	return c
}

func routerFromModel(m *nb.LogicalRouter) Router {
	r := Router{UUID: m.UUID, Name: m.Name, Options: m.Options, ExternalIDs: m.ExternalIDs}
	r.Owner = takeOwner(r.ExternalIDs)
	return r
}

func routerPortFromModel(m *nb.LogicalRouterPort) RouterPort {
	p := RouterPort{UUID: m.UUID, Name: m.Name, MAC: m.MAC, Networks: m.Networks, Options: m.Options, ExternalIDs: m.ExternalIDs}
	p.Owner, p.Router = takePlace(p.ExternalIDs)
	return p
}

func routerPolicyFromModel(m *nb.LogicalRouterPolicy) RouterPolicy {
	p := RouterPolicy{UUID: m.UUID, Priority: m.Priority, Match: m.Match, Action: m.Action, ExternalIDs: m.ExternalIDs}
	p.Owner, p.Router = takePlace(p.ExternalIDs)
	return p
}
