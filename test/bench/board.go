// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// board is what was seen last of each of some things, and when. Of what is gone
// that is the zero value.
type board[V any] struct {
	mu      sync.Mutex
	now     map[string]sighting[V]
	changed chan struct{} // closed and replaced at every change
}

type sighting[V any] struct {
	value V
	at    time.Time
}

func newBoard[V any]() *board[V] {
	return &board[V]{now: map[string]sighting[V]{}, changed: make(chan struct{})}
}

func (b *board[V]) put(name string, value V) { b.putAt(name, value, time.Now()) }

// putAt is put of what was seen a moment ago.
func (b *board[V]) putAt(name string, value V, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now[name] = sighting[V]{value, at}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *board[V]) get(name string) (sighting[V], <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now[name], b.changed
}

// await returns what is seen of a thing as soon as ready says that this is it.
func (b *board[V]) await(ctx context.Context, name string, ready func(V) bool) (sighting[V], error) {
	return b.awaitAfter(ctx, name, time.Time{}, ready)
}

// awaitAfter is await for a change that is seen later than at some time.
func (b *board[V]) awaitAfter(ctx context.Context, name string, began time.Time, ready func(V) bool) (sighting[V], error) {
	for {
		s, changed := b.get(name)
		if ready(s.value) && !s.at.Before(began) {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, fmt.Errorf("wait for a change of %s, which is %v: %w", name, s.value, context.Cause(ctx))
		}
	}
}
