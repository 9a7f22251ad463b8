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
	cancel context.CancelFunc // nil for a call that is not to be ended
	done   chan struct{}
}

// lock waits until no other call works on key. cancel is what end calls to end
// the work; nil is for work that has to be finished.
func (l *locks) lock(ctx context.Context, cancel context.CancelFunc, key string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		other := l.held[key]
		if other == nil {
			h := &holder{cancel: cancel, done: make(chan struct{})}
			l.held[key] = h
			l.mu.Unlock()
			return func() { l.unlock(key, h) }, nil
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-other.done:
		}
	}
}

func (l *locks) unlock(key string, h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, key)
	close(h.done)
}

// end ends the call that works on key, if there is one that can be ended,
// without waiting for it.
func (l *locks) end(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.held[key]; h != nil && h.cancel != nil {
		h.cancel()
	}
}
