// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"context"
	"errors"
	"sync"
)

// turns lets one call at a time work on an attachment.
type turns struct {
	mu    sync.Mutex
	taken map[string]*turn
}

type turn struct {
	cancel context.CancelCauseFunc // nil for a call that is not to be ended
	done   chan struct{}
}

// errDeleted ends an Allocate.
var errDeleted = errors.New("ended by a DEL of the attachment")

// take waits until no other call works on key. cancel is what ends the work; nil is for
// work that is to be finished, and that ends the other.
func (t *turns) take(ctx context.Context, key string, cancel context.CancelCauseFunc) (giveUp func(), err error) {
	for {
		t.mu.Lock()
		other := t.taken[key]
		if other == nil {
			mine := &turn{cancel: cancel, done: make(chan struct{})}
			t.taken[key] = mine
			t.mu.Unlock()
			return func() { t.giveUp(key, mine) }, nil
		}
		t.mu.Unlock()
		if cancel == nil && other.cancel != nil {
			other.cancel(errDeleted)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-other.done:
		}
	}
}

func (t *turns) giveUp(key string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, key)
	close(mine.done)
}
