// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package watcher watches the ports of guests that have a DHCP client of their own,
// as VMs do: what they ask, what servers answer, what they say of themselves by ARP.
// State decides, from what was seen, what address a port has and whether it is held
// to it.
package watcher

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"
)

// Config is what a Watcher needs.
type Config struct {
	// Report is called with each observation, from Run's goroutine and in the order
	// of the port's frames. All ports wait for it. It may call Watch and Forget.
	Report func(Observation)
	Log    *slog.Logger
}

// Watcher watches many ports from one goroutine. However fast a port's frames come,
// they cost a bounded part of it, and other ports are heard.
type Watcher struct {
	cfg Config

	mu sync.Mutex
	// changes are for Run, which alone has the sockets: so none is closed, and its
	// number used again, while it is read.
	changes []change
	wakeFD  int // -1 unless Run runs
	begun   bool
	ended   bool
}

// change is a port to watch, or to forget if tap is nil.
type change struct {
	key string
	tap *tap
}

// New returns a Watcher without ports.
func New(cfg Config) (*Watcher, error) {
	if cfg.Report == nil || cfg.Log == nil {
		return nil, errors.New("watcher: Report and Log are required")
	}
	return &Watcher{cfg: cfg, wakeFD: -1}, nil
}

// errEnded is what Watch returns after Run.
var errEnded = errors.New("the watcher has ended")

// Watch watches a port, in the place of one that has the same key. What happens on
// its wire from then on is reported, once Run runs.
func (w *Watcher) Watch(p Port) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	t, err := openTap(p)
	if err != nil {
		return fmt.Errorf("watching interface %s of port %s: %w", p.Interface, p.Key, err)
	}
	if !w.change(change{p.Key, t}) {
		return errors.Join(fmt.Errorf("watching port %s: %w", p.Key, errEnded), unix.Close(t.fd))
	}
	return nil
}

// Forget stops watching a port, if it is watched. It does not wait for Run, which may
// report what it is reading just then.
func (w *Watcher) Forget(key string) { w.change(change{key: key}) }

// change queues a change; false if Run has ended.
func (w *Watcher) change(c change) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	w.changes = append(w.changes, c)
	w.wake()
	return true
}

// wake ends Run's wait; w.mu is held.
func (w *Watcher) wake() {
	if w.wakeFD >= 0 {
		// It fails only if it is to wake already.
		_, _ = unix.Write(w.wakeFD, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// Run watches until the context ends, and then forgets all ports. It is called once,
// and returns nil then.
func (w *Watcher) Run(ctx context.Context) error {
	l, err := w.begin()
	if err != nil {
		return fmt.Errorf("watching ports: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake()
	})
	defer stop()
	defer w.end(l)
	for ctx.Err() == nil {
		if err := l.turn(); err != nil {
			return fmt.Errorf("watching ports: %w", err)
		}
	}
	return nil
}

func (w *Watcher) begin() (*loop, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return nil, errors.New("run is called a second time")
	}
	l, err := newLoop(w)
	if err != nil {
		return nil, err
	}
	w.begun, w.wakeFD = true, l.wakeFD
	return l, nil
}

func (w *Watcher) end(l *loop) {
	w.mu.Lock()
	w.ended, w.wakeFD = true, -1
	w.mu.Unlock()
	l.close()
}

// take returns the queued changes.
func (w *Watcher) take() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.changes
	w.changes = nil
	return out
}
