// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/ovsdb/serverdb"
)

// watcher is a connection to a server's database about itself, _Server (see
// ovsdb-server(7)), which says whether it leads the cluster of a database. It
// stands in for libovsdb's leader-only option, which leaves a goroutine and the
// cache behind with each connection.
type watcher struct {
	*connection

	database string
	changed  chan struct{} // holds a token after a change
}

// findLeader connects to the server that leads the cluster of a database; one
// that is in no cluster leads. All are asked at the same time, so that none has
// to wait for another that is down.
func findLeader(ctx context.Context, endpoints []string, tlsConfig *tls.Config, database string) (*watcher, error) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	watchers, errs := make([]*watcher, len(endpoints)), make([]error, len(endpoints))
	var all sync.WaitGroup
	for i, endpoint := range endpoints {
		all.Go(func() {
			if watchers[i], errs[i] = watch(ctx, endpoint, tlsConfig, database); errs[i] == nil {
				found()
			}
		})
	}
	all.Wait()
	var leader *watcher
	for _, w := range watchers {
		switch {
		case w == nil:
		case leader == nil:
			leader = w
		default:
			w.close()
		}
	}
	if leader == nil {
		return nil, errors.Join(errs...)
	}
	return leader, nil
}

// watch connects to a server that leads.
func watch(ctx context.Context, endpoint string, tlsConfig *tls.Config, database string) (*watcher, error) {
	model, err := serverdb.FullDatabaseModel()
	if err != nil {
		return nil, fmt.Errorf("model of database _Server: %w", err)
	}
	w := &watcher{database: database, changed: make(chan struct{}, 1)}
	d := &serverdb.Database{}
	if w.connection, err = connect(ctx, endpoint, tlsConfig, model, w.notify, client.WithTable(d, &d.Name, &d.Model, &d.Leader)); err != nil {
		return nil, err
	}
	if err := w.check(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// check is nil while the server leads. What it doesn't know the database's own
// connection finds out.
func (w *watcher) check() error {
	for _, row := range w.Cache().Table(serverdb.DatabaseTable).Rows() {
		d := row.(*serverdb.Database)
		if d.Name == w.database && d.Model == serverdb.DatabaseModelClustered && !d.Leader {
			return fmt.Errorf("OVSDB server %s does not lead the cluster of database %s", w.endpoint, w.database)
		}
	}
	return nil
}

// run returns when the server no longer leads, or can't say so any more.
func (w *watcher) run(ctx context.Context) error {
	for {
		if err := w.check(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.lost:
			return errDisconnected
		case <-w.changed:
		}
	}
}
