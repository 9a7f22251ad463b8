// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
)

// errands are what takes time and need not hold up the loop. They are run one
// after the other, in the order in which they were added.
type errands struct {
	mu    sync.Mutex
	queue []func(context.Context)
	wake  chan struct{} // holds a token when there is something
}

func newErrands() *errands { return &errands{wake: make(chan struct{}, 1)} }

func (e *errands) add(errand func(context.Context)) {
	e.mu.Lock()
	e.queue = append(e.queue, errand)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run runs errands until ctx ends.
func (e *errands) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.wake:
		}
		e.mu.Lock()
		queue := e.queue
		e.queue = nil
		e.mu.Unlock()
		for _, errand := range queue {
			errand(ctx)
		}
	}
}
