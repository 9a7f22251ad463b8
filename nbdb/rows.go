// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package nbdb is the part of OVN's northbound database that this product
// writes: plain row values, the difference between the rows that are there and
// those that are wanted, and the one transaction that gets there.
//
// Rows come in groups. The key of a row's group is in its external_ids under
// OwnerKey; what belongs to a group is found through that key, so the cost of a
// change doesn't grow with the database. Nor does it grow with a row: see
// Members.
package nbdb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Keys of external_ids.
const (
	// OwnerKey is on every row of ours; its value is the key of the row's group.
	OwnerKey = "ovn-dhcp-ipam/owner"
	// NetworkKey is where OVN-Kubernetes names the network of a row.
	NetworkKey = "k8s.ovn.org/network"
	// ownNetworkKey is the same where OVN-Kubernetes must not see it.
	ownNetworkKey = "ovn-dhcp-ipam/network"
)

// Rows are rows of the northbound database. The order has no meaning.
type Rows struct {
	Switches       []Switch
	Ports          []Port
	PortGroups     []PortGroup
	AddressSets    []AddressSet
	ACLs           []ACL
	QoS            []QoS
	Routers        []Router
	RouterPorts    []RouterPort
	RouterPolicies []RouterPolicy
}

// Empty reports whether there is no row.
func (r Rows) Empty() bool {
	return len(r.Switches) == 0 && len(r.Ports) == 0 && len(r.PortGroups) == 0 && len(r.AddressSets) == 0 && len(r.ACLs) == 0 &&
		len(r.QoS) == 0 && len(r.Routers) == 0 && len(r.RouterPorts) == 0 && len(r.RouterPolicies) == 0
}

// String is a dump for logs and tests: one line for each row and column,
// sorted, without UUIDs and empty columns.
func (r Rows) String() string {
	rows := slices.Concat(dumps(r.Switches), dumps(r.Ports), dumps(r.PortGroups), dumps(r.AddressSets), dumps(r.ACLs),
		dumps(r.QoS), dumps(r.Routers), dumps(r.RouterPorts), dumps(r.RouterPolicies))
	slices.Sort(rows)
	return strings.Join(rows, "")
}

func dumps[T fmt.Stringer](rows []T) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.String())
	}
	return out
}

func dump(table, name string, columns map[string]any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", table, name)
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		switch v := columns[column].(type) {
		case map[string]string:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				fmt.Fprintf(&b, "  %s:%s = %q\n", column, k, v[k])
			}
		case map[string]int:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				fmt.Fprintf(&b, "  %s:%s = %d\n", column, k, v[k])
			}
		case []string:
			for _, element := range slices.Sorted(slices.Values(v)) {
				fmt.Fprintf(&b, "  %s = %q\n", column, element)
			}
		case *Members:
			for _, element := range slices.Sorted(v.All()) {
				fmt.Fprintf(&b, "  %s = %q\n", column, element)
			}
		case *bool:
			if v != nil {
				fmt.Fprintf(&b, "  %s = %v\n", column, *v)
			}
		default:
			if v != "" && v != 0 && v != false {
				fmt.Fprintf(&b, "  %s = %v\n", column, v)
			}
		}
	}
	return b.String()
}

// withOwner are external_ids as they are in the database.
func withOwner(ids map[string]string, owner string) map[string]string {
	return with(ids, OwnerKey, owner)
}

// takeOwner takes the owner out of external_ids.
func takeOwner(ids map[string]string) string {
	owner := ids[OwnerKey]
	delete(ids, OwnerKey)
	return owner
}

// with is a map with one more key, unless that has no value.
func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if value != "" {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}

// rowUUID is the UUID of a row of ours that does not exist yet: a function of
// what it is, so that whoever creates it twice is refused the second time.
func rowUUID(table, name string) string {
	return uuid.NewSHA1(rowSpace, []byte(table+" "+name)).String()
}

// rowSpace is the name space of these UUIDs (RFC 9562, 6.5).
var rowSpace = uuid.NewSHA1(uuid.NameSpaceDNS, []byte(OwnerKey))
