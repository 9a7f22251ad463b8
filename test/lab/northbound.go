// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sync/errgroup"
)

// newNorthbound prepares the servers of the northbound database.
func (l *Lab) newNorthbound(servers int) {
	var endpoints []string
	for i := range servers {
		name := "ovnnb_db"
		if servers > 1 {
			name = fmt.Sprint(name, i+1)
		}
		d := &database{lab: l, dir: l.centralDir(), name: name, command: l.centralCommand}
		l.northbound = append(l.northbound, d)
		endpoints = append(endpoints, d.endpoint())
	}
	l.NB = strings.Join(endpoints, ",")
}

// startNorthbound creates the database, starts its servers and waits until all
// of them serve it.
func (l *Lab) startNorthbound(ctx context.Context) error {
	if err := l.createNorthbound(ctx); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	for i := range l.northbound {
		g.Go(func() error { return l.StartNB(gctx, i) })
	}
	return g.Wait()
}

// createNorthbound creates the database's files: the first server has the
// cluster for itself, the others join it.
func (l *Lab) createNorthbound(ctx context.Context) error {
	first := l.northbound[0]
	if len(l.northbound) == 1 {
		return first.create(ctx, l.release.schemaNB())
	}
	raft := func(d *database) string { return "unix:" + d.path(".raft") }
	if _, err := output(l.release.command(ctx, "ovsdb-tool", "create-cluster",
		first.path(".db"), l.release.schemaNB(), raft(first))); err != nil {
		return err
	}
	for _, d := range l.northbound[1:] {
		if _, err := output(l.release.command(ctx, "ovsdb-tool", "join-cluster",
			d.path(".db"), "OVN_Northbound", raft(d), raft(first))); err != nil {
			return err
		}
	}
	return nil
}

// StartNB starts the i-th server of the northbound database, counted from 0,
// that StopNB has stopped. It returns when the server serves what the cluster
// has: while there is no majority of servers, it does not.
func (l *Lab) StartNB(ctx context.Context, i int) error {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	d := l.northbound[i]
	if err := d.start(ctx); err != nil {
		return err
	}
	return await(ctx, d.name+" to be part of the cluster", func() bool {
		s, err := northboundState(ctx, d)
		return err == nil && s.Connected
	})
}

// StopNB kills the i-th server of the northbound database, as SIGKILL does. If
// it was the leader, the others need a second or two to elect another.
func (l *Lab) StopNB(i int) error { return l.northbound[i].stop() }

// NBLeader returns which server of the northbound database is the leader,
// counted from 0. It waits until there is one.
func (l *Lab) NBLeader(ctx context.Context) (int, error) { return l.awaitLeader(ctx, -1) }

// MoveNBLeader has the leader of the northbound database's cluster hand its
// office to another server, as it does before it compacts its file, and returns
// the new leader. Both go on running.
func (l *Lab) MoveNBLeader(ctx context.Context) (int, error) {
	if len(l.northbound) == 1 {
		return 0, errors.New("move the leader: the northbound database has one server")
	}
	old, err := l.NBLeader(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := output(l.release.command(ctx, "ovs-appctl", "-t", l.northbound[old].path(".ctl"),
		"cluster/failure-test", "transfer-leadership")); err != nil {
		return 0, err
	}
	return l.awaitLeader(ctx, old)
}

// awaitLeader waits for a leader other than the given server.
func (l *Lab) awaitLeader(ctx context.Context, other int) (leader int, err error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	err = await(ctx, "a leader of the northbound database", func() bool {
		for i, d := range l.northbound {
			if s, err := northboundState(ctx, d); err == nil && s.Leader && i != other {
				leader = i
				return true
			}
		}
		return false
	})
	return leader, err
}

// Nbctl runs ovn-nbctl on the lab's northbound database and returns its output.
// In a cluster it goes to the leader, and first waits for there to be one; if
// that changes meanwhile it can fail, and have done its work nevertheless.
func (l *Lab) Nbctl(ctx context.Context, args ...string) (string, error) {
	if len(l.northbound) > 1 {
		// ovn-nbctl tries each server once.
		if _, err := l.NBLeader(ctx); err != nil {
			return "", err
		}
	}
	return output(l.release.command(ctx, "ovn-nbctl", append([]string{"--db=" + l.NB, toolTimeout}, args...)...))
}

// serverState is what a server says of its part in the cluster: columns of the
// table Database of the database _Server, ovsdb-server(5). A server without a
// cluster is its own leader.
type serverState struct{ Leader, Connected bool }

// northboundState asks a server of the northbound database.
func northboundState(ctx context.Context, d *database) (serverState, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", d.path(".sock"))
	if err != nil {
		return serverState{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	const query = `{"id":0,"method":"transact","params":["_Server",{"op":"select","table":"Database",
		"where":[["name","==","OVN_Northbound"]],"columns":["leader","connected"]}]}`
	if _, err := conn.Write([]byte(query)); err != nil {
		return serverState{}, err
	}
	var reply struct {
		Result []struct{ Rows []serverState }
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return serverState{}, fmt.Errorf("read the state of %s: %w", d.name, err)
	}
	if len(reply.Result) != 1 || len(reply.Result[0].Rows) != 1 {
		return serverState{}, fmt.Errorf("%s does not serve the northbound database", d.name)
	}
	return reply.Result[0].Rows[0], nil
}
