// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ovn-org/libovsdb/ovsdb"
)

// logicalPort is what is seen of a row of Logical_Switch_Port.
type logicalPort struct {
	UUID      string
	Name      string
	Addresses []string
}

func (p logicalPort) exists() bool { return p.UUID != "" }
func (p logicalPort) gone() bool   { return p.UUID == "" }

// has reports whether the port has just this string of addresses.
func (p logicalPort) has(addresses string) bool {
	return slices.Equal(p.Addresses, []string{addresses})
}

// portWatch has the database tell of its ports (RFC 7047, 4.1.5). They are seen when the
// server's message is here, not when a library has made rows of it, which takes as long
// as what is measured.
type portWatch struct {
	conn    net.Conn
	arrived time.Time // when the last bytes did
	ports   *board[logicalPort]
	ended   chan struct{}
}

// Read notes the time.
func (w *portWatch) Read(b []byte) (int, error) {
	n, err := w.conn.Read(b)
	w.arrived = time.Now()
	return n, err
}

// watchPorts returns when all ports there are have been seen. endpoint is a unix socket.
func watchPorts(endpoint string) (*portWatch, error) {
	conn, err := net.Dial("unix", strings.TrimPrefix(endpoint, "unix:"))
	if err != nil {
		return nil, err
	}
	w := &portWatch{conn: conn, ports: newBoard[logicalPort](), ended: make(chan struct{})}
	messages := json.NewDecoder(w)
	request := map[string]any{"id": 0, "method": "monitor", "params": []any{
		"OVN_Northbound", nil, map[string]any{portTable: map[string]any{"columns": []string{"name", "addresses"}}},
	}}
	var answer struct {
		Result portUpdates
		Error  any
	}
	err = json.NewEncoder(conn).Encode(request)
	if err == nil {
		err = messages.Decode(&answer)
	}
	if err == nil && answer.Error != nil {
		err = fmt.Errorf("%v", answer.Error)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("monitor ports of %s: %w", endpoint, err)
	}
	w.see(answer.Result)
	go w.run(messages)
	return w, nil
}

// run reads until the connection is closed.
func (w *portWatch) run(messages *json.Decoder) {
	defer close(w.ended)
	for {
		var message struct {
			ID     any
			Method string
			Params []json.RawMessage
		}
		if messages.Decode(&message) != nil {
			return
		}
		switch {
		case message.Method == "echo": // the server asks whether somebody is there
			if json.NewEncoder(w.conn).Encode(map[string]any{"id": message.ID, "result": message.Params, "error": nil}) != nil {
				return
			}
		case message.Method == "update" && len(message.Params) == 2:
			var updates portUpdates
			if json.Unmarshal(message.Params[1], &updates) != nil {
				return
			}
			w.see(updates)
		}
	}
}

func (w *portWatch) close() {
	w.conn.Close()
	<-w.ended
}

// portUpdates are table-updates of RFC 7047, by table and UUID.
type portUpdates map[string]map[string]struct{ Old, New *portRow }

type portRow struct {
	Name      string
	Addresses ovsdb.OvsSet
}

func (w *portWatch) see(updates portUpdates) {
	for uuid, u := range updates[portTable] {
		switch {
		case u.New != nil:
			p := logicalPort{UUID: uuid, Name: u.New.Name}
			for _, a := range u.New.Addresses.GoSet {
				p.Addresses = append(p.Addresses, fmt.Sprint(a))
			}
			w.ports.putAt(p.Name, p, w.arrived)
		case u.Old != nil:
			w.ports.putAt(u.Old.Name, logicalPort{}, w.arrived)
		}
	}
}
