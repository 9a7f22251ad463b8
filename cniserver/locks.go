// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"sync"
)

// locks lets one call at a time work on an attachment.
type locks struct {
	mu   sync.Mutex
	held map[string]*holder
}

type holder struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// lock waits until no other call works on key and returns the context to work
// with, which ends early if a call with preempt comes.
func (l *locks) lock(ctx context.Context, key string, preempt bool) (context.Context, func(), error) {
	for {
		l.mu.Lock()
		other := l.held[key]
		if other == nil {
			ctx, cancel := context.WithCancel(ctx)
			h := &holder{cancel: cancel, done: make(chan struct{})}
			l.held[key] = h
			l.mu.Unlock()
			return ctx, func() { l.unlock(key, h) }, nil
		}
		l.mu.Unlock()
		if preempt {
			other.cancel()
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-other.done:
		}
	}
}

func (l *locks) unlock(key string, h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, key)
	h.cancel()
	close(h.done)
}
