// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
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
	err     error // why it has ended
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
	go func() {
		defer close(w.ended)
		w.err = w.run(messages)
	}()
	return w, nil
}

// run reads until the connection is closed.
func (w *portWatch) run(messages *json.Decoder) error {
	for {
		var message struct {
			ID     any
			Method string
			Params []json.RawMessage
		}
		if err := messages.Decode(&message); err != nil {
			return err
		}
		switch {
		case message.Method == "echo": // the server asks whether somebody is there
			if err := json.NewEncoder(w.conn).Encode(map[string]any{"id": message.ID, "result": message.Params, "error": nil}); err != nil {
				return err
			}
		case message.Method == "update" && len(message.Params) == 2:
			var updates portUpdates
			if err := json.Unmarshal(message.Params[1], &updates); err != nil {
				return err
			}
			w.see(updates)
		}
	}
}

// close returns the error with which it had ended before, if so.
func (w *portWatch) close() error {
	select {
	case <-w.ended:
		return fmt.Errorf("watching ports: %w", errors.Join(w.err, w.conn.Close()))
	default:
	}
	err := w.conn.Close()
	<-w.ended
	return err
}

// portUpdates are table-updates of RFC 7047, by table and UUID.
type portUpdates map[string]map[string]struct{ Old, New *portRow }

type portRow struct {
	Name      string
	Addresses ovsdb.OvsSet
}

func (w *portWatch) see(updates portUpdates) {
	// One may go and another of the same name come in one message.
	for _, u := range updates[portTable] {
		if u.New == nil && u.Old != nil {
			w.ports.putAt(u.Old.Name, logicalPort{}, w.arrived)
		}
	}
	for uuid, u := range updates[portTable] {
		if u.New == nil {
			continue
		}
		p := logicalPort{UUID: uuid, Name: u.New.Name}
		for _, a := range u.New.Addresses.GoSet {
			p.Addresses = append(p.Addresses, fmt.Sprint(a))
		}
		w.ports.putAt(p.Name, p, w.arrived)
	}
}
