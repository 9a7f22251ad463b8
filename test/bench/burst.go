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

// burst creates pods that have their lease already, as fast as the API takes
// them, until there are n.
func (s *system) burst(ctx context.Context, n int) error {
	fresh := make([]attachment, n-len(s.pods))
	for i := range fresh {
		fresh[i] = attachmentOf(len(s.pods) + i)
	}
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for _, a := range fresh {
		g.Go(func() error { return s.createPod(gctx, a.pod, a.leased()) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	created := time.Since(began)
	var last time.Time
	for _, a := range fresh {
		p, err := s.nb.ports.await(ctx, a.port(), a.pinned)
		if err != nil {
			return err
		}
		if p.at.After(last) {
			last = p.at
		}
	}
	rate := func(took time.Duration) float64 { return float64(len(fresh)) / took.Seconds() }
	r := row{
		figure:    fmt.Sprintf("burst of %d pods after %d", len(fresh), len(s.pods)),
		got:       fmt.Sprintf("%.0f pods/s", rate(last.Sub(began))),
		yardstick: fmt.Sprintf("the API alone, in the same burst %.0f pods/s", rate(created)),
		ratio:     times.Ratio(last.Sub(began), created),
	}
	if len(s.pods) == 0 {
		r = r.against("≥ 300 pods/s", "300 pods/s")
	}
	s.table.add(r)
	s.pods = append(s.pods, fresh...)
	return nil
}
