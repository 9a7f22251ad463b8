// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Fence keeps all but the newest leader from writing. It is a row that names
// the leader and its term, an Address_Set that no match refers to. Whoever
// comes to lead takes it, and each of its transactions begins with a wait for
// that row to be still so: what a former leader sends, even if it slept for an
// hour in the middle of it, is refused as a whole.
type Fence struct {
	// Name tells the fences of one database apart.
	Name string
	// Leader names this process, and neither another nor a former run of it.
	Leader string
	// Elected asks those who hold the election, and not what was known before,
	// whether Leader leads at this moment. It is called between the reading of
	// the fence and its taking: a leader that slept before it took the fence
	// can't take it from its successor.
	Elected func(ctx context.Context) (bool, error)
}

// ErrSuperseded says that this process no longer leads. What it was about to
// write is not written.
var ErrSuperseded = errors.New("superseded: this process no longer leads")

// external_ids of the fence.
const (
	fenceOwner     = "fence"
	fenceLeaderKey = "ovn-dhcp-ipam/leader"
	fenceTermKey   = "ovn-dhcp-ipam/term"
)

// hold is a fence that was taken.
type hold struct{ uuid, row, leader, term string }

// take takes the fence for its leader, unless that has it already: the answer
// to an earlier attempt may have been lost.
func (s *Session) take(ctx context.Context, f Fence) (*hold, error) {
	id := "ovn-dhcp-ipam:Fence:" + f.Name
	row := setName(id)
	uuid, have, err := s.readFence(ctx, row)
	if err != nil {
		return nil, err
	}
	if have[fenceLeaderKey] == f.Leader {
		return &hold{uuid, row, f.Leader, have[fenceTermKey]}, nil
	}
	elected, err := f.Elected(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask whether %s leads: %w", f.Leader, err)
	}
	if !elected {
		return nil, fmt.Errorf("%w: %s is not the one that is elected", ErrSuperseded, f.Leader)
	}
	// Leader alone is enough to tell holders apart: a term that somebody has
	// made unreadable may start over.
	term, _ := strconv.Atoi(have[fenceTermKey])
	want := maps.Clone(have)
	maps.Copy(want, map[string]string{
		OwnerKey:         fenceOwner,
		fenceLeaderKey:   f.Leader,
		fenceTermKey:     strconv.Itoa(term + 1),
		"k8s.ovn.org/id": id,
		// OVN-Kubernetes removes address sets that no controller owns.
		"k8s.ovn.org/owner-controller": "ovn-dhcp-ipam",
		"k8s.ovn.org/owner-type":       "Fence",
	})
	if err := s.transact(ctx, takeFence(row, uuid != "", have, want)); err != nil {
		return nil, err
	}
	return &hold{cmp.Or(uuid, rowUUID(nb.AddressSetTable, row)), row, f.Leader, want[fenceTermKey]}, nil
}

// readFence asks the server for the external_ids of the fence, and its UUID, ""
// if it does not exist.
func (s *Session) readFence(ctx context.Context, row string) (uuid string, ids map[string]string, err error) {
	results, err := s.session.Transact(ctx, libovsdb.Operation{
		Op: libovsdb.OperationSelect, Table: nb.AddressSetTable, Where: byName(row), Columns: []string{"_uuid", "external_ids"},
	})
	switch {
	case err != nil:
	case len(results) != 1:
		err = fmt.Errorf("%d results", len(results))
	case results[0].Error != "":
		err = fmt.Errorf("%s: %s", results[0].Error, results[0].Details)
	}
	if err != nil {
		return "", nil, fmt.Errorf("read the fence in OVN's northbound database: %w", err)
	}
	ids = map[string]string{}
	for _, r := range results[0].Rows {
		if u, ok := r["_uuid"].(libovsdb.UUID); ok {
			uuid = u.GoUUID
		}
		if m, ok := r["external_ids"].(libovsdb.OvsMap); ok {
			for k, v := range m.GoMap {
				ids[fmt.Sprint(k)] = fmt.Sprint(v)
			}
		}
	}
	return uuid, ids, nil
}

// takeFence changes the fence, if it is still as it was read.
func takeFence(row string, exists bool, have, want map[string]string) []operation {
	if !exists {
		return []operation{{
			what: "create the fence",
			Operation: libovsdb.Operation{
				Op: libovsdb.OperationInsert, Table: nb.AddressSetTable, UUID: rowUUID(nb.AddressSetTable, row),
				Row: libovsdb.Row{"name": row, "external_ids": ovsMap(want)},
			},
		}}
	}
	where := byName(row)
	return []operation{{
		what: "make sure that nobody else has taken the fence",
		Operation: libovsdb.Operation{
			Op: libovsdb.OperationWait, Table: nb.AddressSetTable, Timeout: new(int), Where: where, Columns: []string{"external_ids"},
			Until: string(libovsdb.WaitConditionEqual), Rows: []libovsdb.Row{{"external_ids": ovsMap(have)}},
		},
	}, {
		what: "take the fence",
		Operation: libovsdb.Operation{
			Op: libovsdb.OperationUpdate, Table: nb.AddressSetTable, Where: where, Row: libovsdb.Row{"external_ids": ovsMap(want)},
		},
	}}
}

// wait refuses the transaction when the fence is no longer held.
func (h hold) wait() operation {
	mine := ovsMap(map[string]string{fenceLeaderKey: h.leader, fenceTermKey: h.term})
	return operation{
		what: "make sure that the fence is ours",
		lost: fmt.Errorf("%w: the fence of %s in OVN's northbound database has changed hands or is gone", ErrSuperseded, h.leader),
		Operation: libovsdb.Operation{
			Op: libovsdb.OperationWait, Table: nb.AddressSetTable, Timeout: new(int),
			// The server finds a row without search only by its UUID, and only if
			// that is the first condition.
			Where:   append(byUUID(h.uuid), libovsdb.NewCondition("external_ids", libovsdb.ConditionIncludes, mine)),
			Columns: []string{"name"}, Until: string(libovsdb.WaitConditionEqual), Rows: []libovsdb.Row{{"name": h.row}},
		},
	}
}

// setName is the name of the address set with an id, by the rule of
// OVN-Kubernetes.
func setName(id string) string {
	h := fnv.New64a()
	h.Write([]byte(id))
	return fmt.Sprintf("a%d", h.Sum64())
}
