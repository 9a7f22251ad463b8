// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// entry is what a Keeper has in memory of a key, beside the record. It is either
// claimed, and the claim's alone, or in a queue.
type entry struct {
	key      string
	progress progress
	holder   *claim
	// gone is the place that the caller knows to be gone; k.mu holds it.
	gone string
	// at is when to look at it; position is where it is in its queue, or -1.
	at       time.Time
	queue    *queue
	position int
}

// succeeded notes that a server has answered.
func (e *entry) succeeded() { e.progress = progress{spread: rand.Float64()} }

// failed notes that an exchange that began at asked came to nothing.
func (e *entry) failed(asked time.Time) {
	e.progress.asked, e.progress.spread = asked, rand.Float64()
	e.progress.failures++
}

// rank says what gives way to what.
type rank int

const (
	working   rank = iota // what Run does
	acquiring             // ends that
	ending                // ends both
)

// claim is one call's, or job's, right to a key. It lasts until giveUp.
type claim struct {
	key    string
	entry  *entry
	ctx    context.Context
	rank   rank
	keeper *Keeper
	cancel context.CancelCauseFunc
	done   chan struct{}
	// closing counts the links being closed, which may outlive the claim.
	closing sync.WaitGroup
}

// claim waits until the key is free. It ends what is of lower rank.
func (k *Keeper) claim(ctx context.Context, key string, rank rank) (*claim, error) {
	for {
		k.mu.Lock()
		if k.ended {
			k.mu.Unlock()
			return nil, errEnded
		}
		e := k.entry(key)
		holder := e.holder
		if holder == nil {
			c := k.take(ctx, e, rank)
			k.mu.Unlock()
			return c, nil
		}
		if holder.rank < rank {
			holder.cancel(errInterrupted)
		}
		k.mu.Unlock()
		select {
		case <-holder.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// entry returns the entry of a key, which it makes if need be.
func (k *Keeper) entry(key string) *entry {
	e, ok := k.entries[key]
	if !ok {
		e = &entry{key: key, position: -1}
		k.entries[key] = e
	}
	return e
}

// take claims a free entry; k.mu is held.
func (k *Keeper) take(ctx context.Context, e *entry, rank rank) *claim {
	if e.position >= 0 {
		heap.Remove(e.queue, e.position)
	}
	c := &claim{key: e.key, entry: e, rank: rank, keeper: k, done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	e.holder = c
	k.working.Add(1)
	return c
}

// giveUp ends the claim: what is next for the key is up to Run.
func (c *claim) giveUp() {
	k := c.keeper
	k.mu.Lock()
	c.entry.holder = nil
	k.enqueue(c.entry)
	k.mu.Unlock()
	c.cancel(nil)
	close(c.done)
	k.working.Done()
	k.lookAgain()
}

// enqueue queues a free entry for what is next, if anything; k.mu is held.
func (k *Keeper) enqueue(e *entry) {
	r, ok := k.records.Get(e.key)
	if !ok {
		delete(k.entries, e.key)
		return
	}
	what, at := next(time.Now(), r, e.progress)
	if what != idle {
		e.at, e.queue = at, k.queues[what.speaks()]
		heap.Push(e.queue, e)
	}
}

// queue is a heap of entries by time, and how many more of them may be worked on at
// once.
type queue struct {
	entries []*entry
	free    int
}

func (q *queue) Len() int           { return len(q.entries) }
func (q *queue) Less(i, j int) bool { return q.entries[i].at.Before(q.entries[j].at) }

func (q *queue) Swap(i, j int) {
	q.entries[i], q.entries[j] = q.entries[j], q.entries[i]
	q.entries[i].position, q.entries[j].position = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.position = len(q.entries)
	q.entries = append(q.entries, e)
}

func (q *queue) Pop() any {
	last := len(q.entries) - 1
	e := q.entries[last]
	q.entries[last], q.entries = nil, q.entries[:last]
	e.position = -1
	return e
}
