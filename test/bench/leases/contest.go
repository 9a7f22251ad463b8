// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// rounds is how often each of those that take part has its turn: enough for the speed of a
// virtual machine, which can change by half within a minute.
const rounds = 9

// client is who gets leases for pods.
type client interface {
	acquire(ctx context.Context, p *pod) error
	// close ends it. The leases are not given back.
	close() error
}

// entrants are those that take part in a contest, in the order of the table's columns,
// each begun anew for its turn; nil where nobody does.
type entrants [contestants]func(context.Context) (client, error)

// byCall are called as the CNI plugin dhcp calls its daemon, each in a process of its
// own. What the call takes is in the figures of all three.
func (b *bench) byCall() entrants {
	of := func(p program) func(context.Context) (client, error) {
		return func(ctx context.Context) (client, error) { return b.start(ctx, p) }
	}
	return entrants{of(b.ours), of(b.upstream), of(b.bare)}
}

// inProcess are functions of this process.
func (b *bench) inProcess() entrants {
	return entrants{b.newEngine, nil, func(context.Context) (client, error) { return &bare{}, nil }}
}

// turns are the times that each of those that take part took, by round.
type turns [contestants][rounds]times.Times

// all are the times of one in all rounds.
func (t *turns) all(column int) times.Times { return slices.Concat(t[column][:]...) }

// ratio is that of the product's median to the bound's in the middle one of the rounds:
// those of one round followed each other at once.
func (t *turns) ratio() float64 {
	var ratios []float64
	for i := range rounds {
		ratios = append(ratios, times.Ratio(t[product][i].Median(), t[bound][i].Median()))
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// contest has the same measured of all, by turns, with the links of the first pods up
// before.
func (b *bench) contest(ctx context.Context, all entrants, links int, measure func(client, *times.Times) error) (took turns, err error) {
	for round := range rounds {
		for column, begin := range all {
			if begin == nil {
				continue
			}
			if err := b.network.setLinks(ctx, links); err != nil {
				return took, err
			}
			if err := b.server.restart(ctx); err != nil {
				return took, err
			}
			c, err := begin(ctx)
			if err != nil {
				return took, err
			}
			if err := errors.Join(measure(c, &took[column][round]), c.close()); err != nil {
				return took, err
			}
		}
	}
	return took, nil
}
