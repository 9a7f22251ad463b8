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
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"
	"golang.org/x/sync/errgroup"
)

const (
	dialTimeout  = 20 * time.Second
	echoInterval = 5 * time.Second
	echoTimeout  = 15 * time.Second
	minBackoff   = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// Config says which server to speak to and what to monitor there.
type Config struct {
	// Endpoint is "unix:/path", "tcp:host:port", or a comma list of such; of
	// a clustered database the leader is used.
	Endpoint string
	// Model has the tables that are used. A server that lacks one of its
	// tables or columns is refused.
	Model model.ClientDBModel
	// Tables are what is monitored.
	Tables []client.MonitorOption
	Log    *slog.Logger
}

// Session is one connection to a server, whose cache is in step with it. It is
// safe for concurrent use.
type Session struct {
	client.Client

	ended   chan struct{} // closed when the session is given up
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change of the cache
}

// Run dials the server and calls serve with the session, again and again with
// back-off, until ctx ends; it returns only then, with ctx's error. The
// context that serve gets ends when the session is lost. serve returns when
// that context ends, or earlier with an error to have the session replaced.
func Run(ctx context.Context, cfg Config, serve func(ctx context.Context, s *Session) error) error {
	backoff := minBackoff
	for {
		started := time.Now()
		err := runOnce(ctx, cfg, serve)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(started) > maxBackoff {
			backoff = minBackoff
		}
		cfg.Log.Warn("OVSDB session ended, dialling again", "endpoint", cfg.Endpoint, "after", backoff, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// ErrEnded says that the session ended while it was in use; there will be
// another.
var ErrEnded = errors.New("OVSDB session ended")

var errDisconnected = errors.New("server closed the connection")

func runOnce(ctx context.Context, cfg Config, serve func(ctx context.Context, s *Session) error) error {
	s, err := dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	defer close(s.ended)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.probe(ctx) })
	g.Go(func() error {
		if err := serve(ctx, s); err != nil {
			return err
		}
		return errors.New("session no longer served")
	})
	return g.Wait()
}

func dial(ctx context.Context, cfg Config) (*Session, error) {
	quiet := logr.Discard()
	options := []client.Option{client.WithLogger(&quiet), client.WithLeaderOnly(true)}
	endpoints, err := ParseEndpoints(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	for _, endpoint := range endpoints {
		options = append(options, client.WithEndpoint(endpoint))
	}
	c, err := client.NewOVSDBClient(cfg.Model, options...)
	if err != nil {
		return nil, fmt.Errorf("OVSDB client for %s: %w", cfg.Endpoint, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to OVSDB server %s: %w", cfg.Endpoint, err)
	}
	s := &Session{Client: c, ended: make(chan struct{}), changed: make(chan struct{})}
	c.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { s.notify() },
		UpdateFunc: func(string, model.Model, model.Model) { s.notify() },
		DeleteFunc: func(string, model.Model) { s.notify() },
	})
	if _, err := c.Monitor(ctx, c.NewMonitor(cfg.Tables...)); err != nil {
		c.Close()
		return nil, fmt.Errorf("monitor OVSDB server %s: %w", cfg.Endpoint, err)
	}
	return s, nil
}

// probe returns when the connection is lost or the server no longer answers.
// The client's notification of a lost connection is dropped when nobody is
// listening at that moment; the echo finds those.
func (s *Session) probe(ctx context.Context) error {
	tick := time.NewTicker(echoInterval)
	defer tick.Stop()
	lost := s.DisconnectNotify()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lost:
			return errDisconnected
		case <-tick.C:
		}
		echo, cancel := context.WithTimeout(ctx, echoTimeout)
		err := s.Echo(echo)
		cancel()
		if err != nil {
			return fmt.Errorf("OVSDB echo: %w", err)
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
