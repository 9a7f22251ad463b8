// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// errandsAtATime is how many errands are run at the same time.
const errandsAtATime = 8

// errands are what takes time and need not hold up the loop. Those about one thing
// are run one after the other, in the order in which they were added; one that hangs
// holds up no others.
type errands struct {
	mu     sync.Mutex
	queues map[string][]func(context.Context) // by what they are about; the first may be under way
	ready  []string                           // of the queues whose first is to be run
	wake   chan struct{}                      // holds a token when some are ready
}

func newErrands() *errands {
	return &errands{queues: map[string][]func(context.Context){}, wake: make(chan struct{}, 1)}
}

func (e *errands) add(about string, errand func(context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queues[about] = append(e.queues[about], errand)
	if len(e.queues[about]) == 1 {
		e.offer(about)
	}
}

// offer has the first errand of a queue run; e.mu is held.
func (e *errands) offer(about string) {
	e.ready = append(e.ready, about)
	e.rouse()
}

// rouse has somebody look for what is ready; e.mu is held.
func (e *errands) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run runs errands until ctx ends, and returns when none is under way any more.
func (e *errands) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range errandsAtATime {
		g.Go(func() error { return e.work(ctx) })
	}
	return g.Wait()
}

func (e *errands) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.wake:
		}
		for about, errand := e.next(); errand != nil && ctx.Err() == nil; about, errand = e.next() {
			errand(ctx)
			e.done(about)
		}
	}
}

// next takes what is ready; nil if nothing is.
func (e *errands) next() (about string, errand func(context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ready) == 0 {
		return "", nil
	}
	about, e.ready = e.ready[0], e.ready[1:]
	if len(e.ready) > 0 {
		e.rouse() // somebody else
	}
	return about, e.queues[about][0]
}

func (e *errands) done(about string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queues[about] = e.queues[about][1:]; len(e.queues[about]) > 0 {
		e.offer(about)
		return
	}
	delete(e.queues, about)
}
