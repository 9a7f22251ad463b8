// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

const (
	// burstLeases leases are acquired, burstParallel at a time.
	burstLeases   = 200
	burstParallel = 16
	// singleLeases are acquired one by one.
	singleLeases = 100
)

// bursts measures many leases at a time.
func (b *bench) bursts(ctx context.Context) error {
	for _, w := range []struct {
		how       string
		entrants  entrants
		up        int // so many links are up before
		goal      string
		ratio     float64
		atMost    time.Duration
		elsewhere string
	}{
		{"links up, by call", b.byCall(), burstLeases, "≤ 1.2 × bare", 1.2, 0, "331 ms"},
		{"links up, in one process", b.inProcess(), burstLeases, "≤ 1.2 × bare", 1.2, 0, "bare 139–235 ms"},
		{"links down before, by call", b.byCall(), 0, "≤ 1 s", 0, time.Second, "3.2 s"},
	} {
		r := row{figure: fmt.Sprintf("%d leases, %d at a time, %s", burstLeases, burstParallel, w.how), goal: w.goal, elsewhere: w.elsewhere}
		progress("%s", r.figure)
		took, err := b.contest(ctx, w.entrants, w.up, func(c client, t *times.Times) error {
			began := time.Now()
			err := acquireAll(ctx, c, b.network.pods[:burstLeases])
			*t = append(*t, time.Since(began))
			return err
		})
		if err != nil {
			return err
		}
		r.fill(&took, func(t times.Times) string { return fmt.Sprintf("%.0f ms", times.Milliseconds(t.Median())) })
		r.met = r.ratio > 0 && r.ratio <= w.ratio || w.atMost > 0 && took.all(product).Median() <= w.atMost
		b.table.add(r)
	}
	return nil
}

// acquireAll gets a lease for each pod, some at a time.
func acquireAll(ctx context.Context, c client, pods []*pod) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(burstParallel)
	for _, p := range pods {
		g.Go(func() error { return c.acquire(ctx, p) })
	}
	return g.Wait()
}

// single measures one lease at a time.
func (b *bench) single(ctx context.Context) error {
	for _, w := range []struct {
		how       string
		entrants  entrants
		elsewhere string
	}{
		{"by call", b.byCall(), "16 / 20 ms"},
		{"in one process", b.inProcess(), "bare 1 ms"},
	} {
		r := row{figure: "one lease, p50 / p95, " + w.how, goal: "p50 ≤ 3 ms", elsewhere: w.elsewhere}
		progress("%s, of %d leases", r.figure, singleLeases)
		took, err := b.contest(ctx, w.entrants, singleLeases, func(c client, t *times.Times) error {
			for _, p := range b.network.pods[:singleLeases] {
				began := time.Now()
				if err := c.acquire(ctx, p); err != nil {
					return err
				}
				*t = append(*t, time.Since(began))
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.fill(&took, percentiles)
		r.met = took.all(product).Median() <= 3*time.Millisecond
		b.table.add(r)
	}
	return nil
}
