// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

const (
	switchTable = "Logical_Switch"
	portTable   = "Logical_Switch_Port"
	setTable    = "Address_Set"
)

// addressSet is what is seen of a row of Address_Set.
type addressSet struct {
	UUID string
	size int // how many addresses
}

// setRow is a row of Address_Set in libovsdb's cache, which clones rows again and
// again. To keep an observer's work from growing with the set, the clones have no
// addresses: libovsdb then puts into the column what differs, and that is counted.
type setRow struct {
	UUID        string            `ovsdb:"_uuid"`
	Name        string            `ovsdb:"name"` // the table's index
	ExternalIDs map[string]string `ovsdb:"external_ids"`
	Addresses   []string          `ovsdb:"addresses"`
	elements    *elements         // shared by all clones
}

// elements are the addresses of a set, each of which comes again when it goes.
type elements struct {
	mu  sync.Mutex
	now map[string]bool
}

func (e *elements) toggle(addresses []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range addresses {
		if e.now[a] {
			delete(e.now, a)
		} else {
			e.now[a] = true
		}
	}
}

func (e *elements) size() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.now)
}

// CloneModel is a copy whose addresses have been counted. A row that is in the
// cache has none, and is only read.
func (r *setRow) CloneModel() model.Model {
	if r.elements == nil {
		r.elements = &elements{now: map[string]bool{}}
	}
	if len(r.Addresses) > 0 {
		r.elements.toggle(r.Addresses)
		r.Addresses = nil
	}
	return &setRow{UUID: r.UUID, Name: r.Name, ExternalIDs: maps.Clone(r.ExternalIDs), elements: r.elements}
}

// CloneModelInto is CloneModel to another row.
func (r *setRow) CloneModelInto(to model.Model) { *to.(*setRow) = *r.CloneModel().(*setRow) }

// northbound is a client of OVN's northbound database: it sees rows come, change
// and go, and writes bare ones, which nobody but it has to do with.
type northbound struct {
	endpoint string
	client   client.Client
	watch    *portWatch
	ports    *board[logicalPort] // by name
	sets     *board[addressSet]  // by their id without its owner
	// switchUUID is the switch that has all the ports, bare ones too.
	switchUUID string
}

// dialNorthbound connects, and returns when all ports there are have been seen.
func dialNorthbound(ctx context.Context, endpoint string) (*northbound, error) {
	database, err := model.NewClientDBModel("OVN_Northbound", map[string]model.Model{setTable: &setRow{}})
	if err != nil {
		return nil, err
	}
	quiet := logr.Discard()
	c, err := client.NewOVSDBClient(database, client.WithEndpoint(endpoint), client.WithLogger(&quiet))
	if err != nil {
		return nil, err
	}
	if err := c.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	w, err := watchPorts(endpoint)
	if err != nil {
		c.Close()
		return nil, err
	}
	n := &northbound{endpoint: endpoint, client: c, watch: w, ports: w.ports, sets: newBoard[addressSet]()}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { n.see(row, true) },
		UpdateFunc: func(_ string, _, row model.Model) { n.see(row, true) },
		DeleteFunc: func(_ string, row model.Model) { n.see(row, false) },
	})
	a := &setRow{}
	if _, err := c.Monitor(ctx, c.NewMonitor(client.WithTable(a, &a.Name, &a.ExternalIDs, &a.Addresses))); err != nil {
		return nil, errors.Join(fmt.Errorf("monitor %s: %w", endpoint, err), n.close())
	}
	return n, nil
}

func (n *northbound) see(row model.Model, exists bool) {
	set, ok := row.(*setRow)
	if !ok {
		return
	}
	_, id, _ := strings.Cut(set.ExternalIDs["k8s.ovn.org/id"], ":")
	if exists {
		n.sets.put(":"+id, addressSet{set.UUID, set.elements.size()})
	} else {
		n.sets.put(":"+id, addressSet{})
	}
}

func (n *northbound) close() error {
	n.client.Close()
	return n.watch.close()
}

// bareSet makes an address set that nobody uses, and then puts an address into it
// again and again. It returns how long each took until it was seen.
func (n *northbound) bareSet(ctx context.Context, size, samples int) (took times.Times, err error) {
	const id = ":" + bare
	var addresses []string
	for i := range size {
		addresses = append(addresses, attachmentOf(i).addr)
	}
	transact := func(op ovsdb.Operation, size int) (time.Duration, error) {
		began := time.Now()
		results, err := n.client.Transact(ctx, op)
		if err == nil {
			_, err = ovsdb.CheckOperationResults(results, []ovsdb.Operation{op})
		}
		if err != nil {
			return 0, fmt.Errorf("write a bare address set: %w", err)
		}
		seen, err := n.sets.awaitAfter(ctx, id, began, ofSize(size))
		return seen.at.Sub(began), err
	}
	set, err := ovsdb.NewOvsSet(addresses)
	if err != nil {
		return nil, err
	}
	ids, err := ovsdb.NewOvsMap(map[string]string{"k8s.ovn.org/id": "nobody" + id})
	if err != nil {
		return nil, err
	}
	insert := ovsdb.Operation{Op: ovsdb.OperationInsert, Table: setTable, Row: ovsdb.Row{"name": bare, "addresses": set, "external_ids": ids}}
	if _, err := transact(insert, size); err != nil {
		return nil, err
	}
	seen, _ := n.sets.get(id)
	where := byUUID(seen.value.UUID)
	for range samples {
		for i, mutator := range []ovsdb.Mutator{ovsdb.MutateOperationInsert, ovsdb.MutateOperationDelete} {
			mutation := ovsdb.NewMutation("addresses", mutator, "192.0.2.1")
			each, err := transact(ovsdb.Operation{Op: ovsdb.OperationMutate, Table: setTable, Where: where, Mutations: []ovsdb.Mutation{*mutation}}, size+1-i)
			if err != nil {
				return nil, err
			}
			took = append(took, each)
		}
	}
	_, err = n.client.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: setTable, Where: where})
	return took, err
}

// find finds the switch by its name.
func (n *northbound) find(ctx context.Context, name string) error {
	results, err := n.client.Transact(ctx, ovsdb.Operation{
		Op: ovsdb.OperationSelect, Table: switchTable, Columns: []string{"_uuid"},
		Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, name)},
	})
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return fmt.Errorf("the northbound database has not one switch %s: %v", name, results)
	}
	uuid, ok := results[0].Rows[0]["_uuid"].(ovsdb.UUID)
	if !ok {
		return fmt.Errorf("switch %s has no UUID: %v", name, results)
	}
	n.switchUUID = uuid.GoUUID
	return nil
}

// insert makes a port and returns how long it took until it was seen.
func (n *northbound) insert(ctx context.Context, name, addresses string) (time.Duration, error) {
	const id = "port"
	return n.write(ctx, name, logicalPort.exists,
		ovsdb.Operation{Op: ovsdb.OperationInsert, Table: portTable, UUIDName: id, Row: ovsdb.Row{"name": name, "addresses": addresses}},
		n.mutate(ovsdb.MutateOperationInsert, id))
}

// update changes a port and returns how long it took until that was seen.
func (n *northbound) update(ctx context.Context, name, addresses string) (time.Duration, error) {
	return n.write(ctx, name, func(p logicalPort) bool { return p.has(addresses) },
		ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: portTable, Where: byUUID(n.uuid(name)), Row: ovsdb.Row{"addresses": addresses}})
}

// remove removes a port and returns how long it took until it was seen as it is
// to be then.
func (n *northbound) remove(ctx context.Context, name string, after func(logicalPort) bool) (time.Duration, error) {
	return n.write(ctx, name, after, n.mutate(ovsdb.MutateOperationDelete, n.uuid(name)))
}

func (n *northbound) uuid(port string) string {
	now, _ := n.ports.get(port)
	return now.value.UUID
}

// mutate puts a port on the switch or takes it off, whereupon the server
// removes it.
func (n *northbound) mutate(mutator ovsdb.Mutator, port string) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: switchTable, Where: byUUID(n.switchUUID),
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("ports", mutator, ovsdb.UUID{GoUUID: port})},
	}
}

func byUUID(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}

// write makes a transaction that changes a port, and returns how long it took
// until the port was seen as it is to be.
func (n *northbound) write(ctx context.Context, port string, done func(logicalPort) bool, ops ...ovsdb.Operation) (time.Duration, error) {
	began := time.Now()
	results, err := n.client.Transact(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return 0, fmt.Errorf("write port %s: %w", port, err)
	}
	seen, err := n.ports.awaitAfter(ctx, port, began, done)
	return seen.at.Sub(began), err
}

// transactions is how many transactions have changed switches, ports, or what
// policies consist of: each is a line of the database's file, ovsdb(5), with the rows by table.
func (n *northbound) transactions() (int, error) {
	// A lab keeps the file beside the socket.
	data, err := os.ReadFile(strings.TrimSuffix(strings.TrimPrefix(n.endpoint, "unix:"), ".sock") + ".db")
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("OVSDB JSON ")) {
			continue // the record's length
		}
		var tables map[string]json.RawMessage
		if err := json.Unmarshal(line, &tables); err != nil {
			return 0, fmt.Errorf("read the northbound database's file: %w", err)
		}
		// A leader's term is in an address set without addresses.
		if tables[switchTable] != nil || tables[portTable] != nil || tables["Port_Group"] != nil || tables["ACL"] != nil ||
			bytes.Contains(tables[setTable], []byte(`"addresses"`)) {
			count++
		}
	}
	return count, nil
}
