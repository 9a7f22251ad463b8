// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// podCount is the larger number of held leases.
	podCount  = 500
	fewLeases = 100
	heldRuns  = 3
	// threadsConstant is the growth that a runtime's idle threads may be: it keeps as
	// many as there once were system calls at a time.
	threadsConstant = 0.05
	// A process that hasn't changed for quietTime has settled; it may take settleTime.
	quietTime  = 1500 * time.Millisecond
	settleTime = 5 * time.Second
)

// held measures what leases that nothing is done for cost a daemon. What a process has of
// memory depends on where it is between two garbage collections, so of several daemons
// the one with the median growth counts.
func (b *bench) held(ctx context.Context) error {
	var few, many [2]usage
	for column, p := range []program{b.ours, b.upstream} {
		progress("%s: %d leases held, and then %d", columns()[column], fewLeases, podCount)
		var runs [heldRuns][2]usage
		for i := range runs {
			var err error
			if runs[i][0], runs[i][1], err = b.holdAnew(ctx, p); err != nil {
				return err
			}
		}
		slices.SortFunc(runs[:], func(a, b [2]usage) int {
			return cmp.Compare(a[1].memory-a[0].memory, b[1].memory-b[0].memory)
		})
		few[column], many[column] = runs[heldRuns/2][0], runs[heldRuns/2][1]
	}
	slope := func(i int, of func(usage) int) float64 {
		return float64(of(many[i])-of(few[i])) / (podCount - fewLeases)
	}
	for _, f := range []struct {
		figure, unit    string
		of              func(usage) int
		goal, elsewhere string
		most            float64
	}{
		{"OS threads", "", func(u usage) int { return u.threads }, "constant", "1", threadsConstant},
		{"file descriptors", "", func(u usage) int { return u.descriptors }, "", "3", 0},
		{"private memory", " KiB", func(u usage) int { return u.memory }, "≤ 8 KiB", "80 KB", 8},
	} {
		r := row{figure: fmt.Sprintf("%s for a lease (at %d, %d)", f.figure, fewLeases, podCount), goal: f.goal, elsewhere: f.elsewhere}
		for i := range few {
			r.got[i] = fmt.Sprintf("%.2f%s (%d, %d)", slope(i, f.of), f.unit, f.of(few[i]), f.of(many[i]))
		}
		r.met = slope(product, f.of) <= f.most
		b.table.add(r)
	}
	return nil
}

// holdAnew holds leases by a new daemon.
func (b *bench) holdAnew(ctx context.Context, p program) (few, many usage, err error) {
	if err := b.network.setLinks(ctx, podCount); err != nil {
		return few, many, err
	}
	if err := b.server.restart(ctx); err != nil {
		return few, many, err
	}
	d, err := b.start(ctx, p)
	if err != nil {
		return few, many, err
	}
	few, many, err = b.hold(ctx, d)
	return few, many, errors.Join(err, d.close())
}

// hold has a daemon get leases, and looks twice what it has.
func (b *bench) hold(ctx context.Context, d *daemon) (few, many usage, err error) {
	if err := acquireAll(ctx, d, b.network.pods[:fewLeases]); err != nil {
		return few, many, err
	}
	if few, err = d.settled(ctx); err != nil {
		return few, many, err
	}
	if err := acquireAll(ctx, d, b.network.pods[fewLeases:]); err != nil {
		return few, many, err
	}
	many, err = d.settled(ctx)
	return few, many, err
}

// settled returns what a process has when that doesn't change any more, or at the end of
// settleTime: a runtime gives memory back bit by bit.
func (d *daemon) settled(ctx context.Context) (usage, error) {
	ctx, cancel := d.Guard(ctx)
	defer cancel()
	began := time.Now()
	var last usage
	since := began
	err := await(ctx, "the daemon to settle", 100*time.Millisecond, func() (bool, error) {
		now, err := d.usage()
		if now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= quietTime || time.Since(began) >= settleTime, err
	})
	return last, err
}
