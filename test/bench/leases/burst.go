// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// burstLeases leases are acquired, burstParallel at a time, burstRuns times.
	burstLeases   = 200
	burstParallel = 16
	burstRuns     = 3
	// singleLeases are acquired one by one.
	singleLeases = 100
)

// contest has the same done by all three: those that take part, in the order of the
// table's columns.
func (b *bench) contest(ctx context.Context, links int, do func(column int, c client) error) error {
	for column, make := range []func() (client, error){
		func() (client, error) { return b.start(ctx, b.ours) },
		func() (client, error) { return b.start(ctx, b.upstream) },
		func() (client, error) { return &bare{}, nil },
	} {
		if err := b.network.setLinks(ctx, links); err != nil {
			return err
		}
		if err := b.server.restart(ctx); err != nil {
			return err
		}
		c, err := make()
		if err != nil {
			return err
		}
		if err := errors.Join(do(column, c), c.close()); err != nil {
			return err
		}
	}
	return nil
}

// bursts measures many leases at a time.
func (b *bench) bursts(ctx context.Context) error {
	for _, links := range []struct {
		state     string
		up        int
		goal      string
		ratio     float64
		atMost    time.Duration
		elsewhere string
	}{
		{"links up", burstLeases, "≤ 1.2 × bare", 1.2, 0, "331 ms; bare 139–235 ms"},
		{"links down before", 0, "≤ 1 s", 0, time.Second, "3.2 s"},
	} {
		progress("%d leases, %d at a time, %s", burstLeases, burstParallel, links.state)
		var took [contestants]times
		for range burstRuns {
			err := b.contest(ctx, links.up, func(column int, c client) error {
				began := time.Now()
				err := acquireAll(ctx, c, b.network.pods[:burstLeases])
				took[column] = append(took[column], time.Since(began))
				return err
			})
			if err != nil {
				return err
			}
		}
		r := row{figure: fmt.Sprintf("%d leases, %d at a time, %s", burstLeases, burstParallel, links.state), goal: links.goal, elsewhere: links.elsewhere}
		for i, t := range took {
			r.got[i] = fmt.Sprintf("%.0f ms", milliseconds(t.median()))
		}
		limit := max(links.atMost, time.Duration(links.ratio*float64(took[bound].median())))
		r.ratio, r.met = ratio(took[product].median(), took[bound].median()), took[product].median() <= limit
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
	progress("%d leases, one by one", singleLeases)
	var took [contestants]times
	err := b.contest(ctx, singleLeases, func(column int, c client) error {
		for _, p := range b.network.pods[:singleLeases] {
			began := time.Now()
			if err := c.acquire(ctx, p); err != nil {
				return err
			}
			took[column] = append(took[column], time.Since(began))
		}
		return nil
	})
	if err != nil {
		return err
	}
	r := row{figure: "one lease, p50 / p95", goal: "p50 ≤ 3 ms", elsewhere: "16 / 20 ms; bare 1 ms"}
	for i, t := range took {
		r.got[i] = t.String()
	}
	r.ratio = ratio(took[product].median(), took[bound].median())
	r.met = took[product].median() <= 3*time.Millisecond
	b.table.add(r)
	return nil
}
