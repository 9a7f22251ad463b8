// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	"github.com/ovn-org/libovsdb/ovsdb"
)

const (
	switchTable = "Logical_Switch"
	portTable   = "Logical_Switch_Port"
)

// logicalPort is what is seen of a row of Logical_Switch_Port.
type logicalPort struct {
	UUID      string   `ovsdb:"_uuid"`
	Name      string   `ovsdb:"name"`
	Addresses []string `ovsdb:"addresses"`
}

func (p logicalPort) exists() bool { return p.UUID != "" }
func (p logicalPort) gone() bool   { return p.UUID == "" }

// has reports whether the port has just this string of addresses.
func (p logicalPort) has(addresses string) bool {
	return slices.Equal(p.Addresses, []string{addresses})
}

// northbound is a client of OVN's northbound database: it sees rows come, change
// and go, and writes bare ones, which nobody but it has to do with.
type northbound struct {
	endpoint string
	client   client.Client
	ports    *board[logicalPort] // by name
	// switchUUID is the switch that has all the ports, bare ones too.
	switchUUID string
}

// dialNorthbound connects, and returns when all ports there are have been seen.
func dialNorthbound(ctx context.Context, endpoint string) (*northbound, error) {
	database, err := model.NewClientDBModel("OVN_Northbound", map[string]model.Model{portTable: &logicalPort{}})
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
	n := &northbound{endpoint: endpoint, client: c, ports: newBoard[logicalPort]()}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { n.see(row, true) },
		UpdateFunc: func(_ string, _, row model.Model) { n.see(row, true) },
		DeleteFunc: func(_ string, row model.Model) { n.see(row, false) },
	})
	p := &logicalPort{}
	if _, err := c.Monitor(ctx, c.NewMonitor(client.WithTable(p, &p.Name, &p.Addresses))); err != nil {
		c.Close()
		return nil, fmt.Errorf("monitor %s: %w", endpoint, err)
	}
	return n, nil
}

func (n *northbound) see(row model.Model, exists bool) {
	p := *row.(*logicalPort)
	name := p.Name
	if !exists {
		p = logicalPort{}
	}
	n.ports.put(name, p)
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

// transactions is how many transactions have changed switches or ports: each is
// a line of the database's file, ovsdb(5), with the rows by table.
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
		if tables[switchTable] != nil || tables[portTable] != nil {
			count++
		}
	}
	return count, nil
}
