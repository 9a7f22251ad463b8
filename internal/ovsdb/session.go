// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package ovsdb keeps sessions with OVSDB servers. A session is one
// connection with one monitor. It is never repaired: at the first error it is
// thrown away, and the next one starts with an empty cache. The client's own
// reconnection is not used, since it can leave a cache that is not the
// server's.
package ovsdb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"
	"golang.org/x/sync/errgroup"
)

const (
	probeInterval = 5 * time.Second
	minBackoff    = 100 * time.Millisecond
	maxBackoff    = 10 * time.Second
)

// Config says which server to speak to and what to monitor there.
type Config struct {
	// Endpoint is "unix:/path", "tcp:host:port", "ssl:host:port", or a comma
	// list of such; of a clustered database the leader is used.
	Endpoint string
	TLS      TLS
	// Model has the tables that are used. A server that lacks one of its
	// tables or columns is refused.
	Model model.ClientDBModel
	// Tables are what is monitored.
	Tables []client.MonitorOption
	Log    *slog.Logger
}

// Check reports what is wrong with the endpoints and the TLS files.
func (cfg Config) Check() error {
	_, _, err := cfg.servers()
	return err
}

// servers are the endpoints and what to speak TLS with, nil when no file is
// given for that.
func (cfg Config) servers() ([]string, *tls.Config, error) {
	endpoints, err := ParseEndpoints(cfg.Endpoint)
	if err != nil || cfg.TLS == (TLS{}) && !slices.ContainsFunc(endpoints, isSSL) {
		return endpoints, nil, err
	}
	tlsConfig, err := cfg.TLS.config()
	return endpoints, tlsConfig, err
}

// Session is one connection to a server, whose cache is in step with it. It is
// safe for concurrent use.
type Session struct {
	*connection

	leader  *watcher
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change of the cache
}

// Run dials the server and calls serve with the session, again and again with
// back-off, until ctx ends; it returns only then, with ctx's error. The
// context that serve gets ends when the session is lost. serve returns when
// that context ends, or earlier with an error to have the session replaced.
func Run(ctx context.Context, cfg Config, serve func(ctx context.Context, s *Session) error) error {
	var wait time.Duration
	for {
		served, err := runOnce(ctx, cfg, serve)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait = backoff(wait, served)
		cfg.Log.Warn("OVSDB session ended, dialling again", "endpoint", cfg.Endpoint, "after", wait, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// backoff is how long to wait after a session that was served for some time,
// none if it did not come about, when the wait before it was last.
func backoff(last, served time.Duration) time.Duration {
	if served > last {
		return minBackoff
	}
	return min(max(2*last, minBackoff), maxBackoff)
}

// ErrEnded says that the session ended while it was in use; there will be
// another.
var ErrEnded = errors.New("OVSDB session ended")

var errDisconnected = errors.New("server closed the connection")

// runOnce dials once and returns how long the session was served.
func runOnce(ctx context.Context, cfg Config, serve func(ctx context.Context, s *Session) error) (time.Duration, error) {
	s, err := dial(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer s.close()
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watch(ctx) })
	g.Go(func() error { return s.leader.run(ctx) })
	g.Go(func() error {
		if err := serve(ctx, s); err != nil {
			return err
		}
		return errors.New("session no longer served")
	})
	err = g.Wait()
	return time.Since(began), err
}

func dial(ctx context.Context, cfg Config) (*Session, error) {
	endpoints, tlsConfig, err := cfg.servers()
	if err != nil {
		return nil, err
	}
	leader, err := findLeader(ctx, endpoints, tlsConfig, cfg.Model.Name())
	if err != nil {
		return nil, err
	}
	s := &Session{leader: leader, changed: make(chan struct{})}
	if s.connection, err = connect(ctx, leader.endpoint, tlsConfig, cfg.Model, s.notify, cfg.Tables...); err != nil {
		leader.close()
		return nil, err
	}
	return s, nil
}

func (s *Session) close() {
	s.connection.close()
	s.leader.close()
}

// watch returns when the connection is lost or the server no longer answers.
func (s *Session) watch(ctx context.Context) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.lost:
			return errDisconnected
		case <-tick.C:
		}
		if err := s.probe(ctx); err != nil {
			return err
		}
	}
}

func (s *Session) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of the cache.
func (s *Session) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Await calls ready now and after every change of the cache, until it returns
// true or an error, or ctx ends. Its error is ErrEnded when the session ends.
func (s *Session) Await(ctx context.Context, ready func() (bool, error)) error {
	for {
		changed := s.Changed()
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return ErrEnded
		case <-changed:
		}
	}
}

// Commit is Transact that returns an error when the server refused the
// transaction.
func (s *Session) Commit(ctx context.Context, ops ...libovsdb.Operation) error {
	results, err := s.Transact(ctx, ops...)
	if err != nil {
		return fmt.Errorf("OVSDB transaction: %w", err)
	}
	for i, r := range results {
		if r.Error == "" {
			continue
		}
		// A result beyond the operations is of the constraints that are checked
		// at the end (RFC 7047, 4.1.3).
		what := "transaction"
		if i < len(ops) {
			what = fmt.Sprintf("%s of table %s", ops[i].Op, ops[i].Table)
		}
		return fmt.Errorf("OVSDB refused the %s: %s: %s", what, r.Error, r.Details)
	}
	return nil
}
