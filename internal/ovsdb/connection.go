// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"context"
	"crypto/tls"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"
)

const (
	connectTimeout = 5 * time.Second
	monitorTimeout = 30 * time.Second
	probeTimeout   = 15 * time.Second
	closeTimeout   = 5 * time.Second
)

// connection is a libovsdb client that is connected once and then thrown away.
// Four things are done otherwise than by libovsdb: a loss while it is dialled does
// no harm, the cache can still be read when the connection is lost, the loss is
// always noticed, and no call lasts longer than its context.
type connection struct {
	client.Client

	endpoint string
	cache    *cache.TableCache
	calls    chan func()   // to the goroutine that makes them
	ended    chan struct{} // closed when the connection is given up
	lost     chan struct{} // closed when it is lost and no longer handled
}

// connect dials one server and fills the cache with tables, which is in step with
// it from then on. changed is called after each change of a row, before connect has
// returned too. tlsConfig is used for an ssl endpoint.
func connect(ctx context.Context, endpoint string, tlsConfig *tls.Config, db model.ClientDBModel, changed func(), tables ...client.MonitorOption) (*connection, error) {
	quiet := logr.Discard()
	inner, err := client.NewOVSDBClient(db, client.WithLogger(&quiet), client.WithEndpoint(endpoint), client.WithTLSConfig(tlsConfig))
	if err != nil {
		return nil, fmt.Errorf("OVSDB client for %s: %w", endpoint, err)
	}
	c := &connection{Client: inner, endpoint: endpoint, calls: make(chan func()), ended: make(chan struct{}), lost: make(chan struct{})}
	// When a connection is lost, libovsdb waits for the goroutines that Connect has
	// started, and takes away the cache and the model. It would do so while Connect
	// and Monitor still use them, and panic.
	using := goroutines(inner)
	using.Add(1)
	if err := c.open(ctx); err != nil {
		using.Done()
		return nil, fmt.Errorf("connect to OVSDB server %s: %w", endpoint, err)
	}
	c.cache = inner.Cache()
	go func() {
		// libovsdb's own notification reaches only those who are waiting for it at
		// that moment.
		using.Wait()
		close(c.lost)
	}()
	go c.makeCalls()
	c.cache.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { changed() },
		UpdateFunc: func(string, model.Model, model.Model) { changed() },
		DeleteFunc: func(string, model.Model) { changed() },
	})
	_, err = bounded(ctx, c, func(ctx context.Context) (struct{}, error) {
		defer using.Done()
		return struct{}{}, c.monitor(ctx, tables)
	})
	if err != nil {
		c.close()
		return nil, fmt.Errorf("monitor OVSDB server %s: %w", endpoint, err)
	}
	return c, nil
}

// goroutines counts those of a client's connection. libovsdb keeps that to itself, so a
// change of its version needs a look at this.
func goroutines(c client.Client) *sync.WaitGroup {
	return (*sync.WaitGroup)(reflect.ValueOf(c).Elem().FieldByName("handlerShutdown").UnsafePointer())
}

func (c *connection) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Connect(ctx)
}

func (c *connection) monitor(ctx context.Context, tables []client.MonitorOption) error {
	// When its context ends, libovsdb looks at an answer that may be coming in at this
	// moment: a data race.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), monitorTimeout)
	defer cancel()
	m := c.NewMonitor(tables...)
	// Of the methods with small updates, the one for which libovsdb ends the connection
	// when an update does not fit its cache.
	m.Method = libovsdb.ConditionalMonitorRPC
	_, err := c.Client.Monitor(ctx, m)
	return err
}

// close ends the connection and waits for libovsdb's handlers. A write to
// a server that does not read holds that up until the kernel gives up; there is
// no waiting for it.
func (c *connection) close() {
	close(c.ended)
	go c.Client.Close()
	select {
	case <-c.lost:
	case <-time.After(closeTimeout):
	}
}

// Cache has the rows that are monitored, as they were last when the connection
// is lost.
func (c *connection) Cache() *cache.TableCache { return c.cache }

// Transact sends a transaction and returns the results of its operations
// (RFC 7047, 4.1.3). With an error it is not known whether the server made it.
func (c *connection) Transact(ctx context.Context, ops ...libovsdb.Operation) ([]libovsdb.OperationResult, error) {
	return bounded(ctx, c, func(ctx context.Context) ([]libovsdb.OperationResult, error) {
		return c.Client.Transact(ctx, ops...)
	})
}

// probe returns when the server has answered. It is an empty transaction:
// libovsdb's Echo has the same data race as its Monitor.
func (c *connection) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := c.Transact(ctx); err != nil {
		return fmt.Errorf("OVSDB server %s does not answer: %w", c.endpoint, err)
	}
	return nil
}

// bounded waits for a call until ctx or the connection ends, and then no
// longer: the call itself may be stuck in a write, whatever its context says.
func bounded[T any](ctx context.Context, c *connection, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	run := func() {
		value, err := call(ctx)
		done <- outcome{value, err}
	}
	select {
	case c.calls <- run:
	default:
		go run()
	}
	var none T
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-c.ended:
		return none, ErrEnded
	}
}

// makeCalls makes one call at a time until the connection ends; others that
// come meanwhile are made elsewhere. The stack of this goroutine has grown to
// what a transaction needs, which takes a new one a tenth of the time of that.
func (c *connection) makeCalls() {
	for {
		select {
		case call := <-c.calls:
			call()
		case <-c.ended:
			return
		}
	}
}
