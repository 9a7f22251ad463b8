// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// restorationSamples is how many rows are removed behind the controller's back.
const restorationSamples = 50

// restoration measures how long a row is missing that somebody else removes.
func (s *system) restoration(ctx context.Context) error {
	progress("controller: removed rows at %d ports", len(s.pods))
	var restored, insert, update times.Times
	err := s.guarded(ctx, func(ctx context.Context) error {
		for _, a := range s.pods[:restorationSamples] {
			took, err := s.nb.remove(ctx, a.port(), a.pinned)
			if err != nil {
				return err
			}
			restored = append(restored, took)
			if err := s.bare(ctx, a, &insert, &update); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r := latency(fmt.Sprintf("row removed by hand → there again, %d ports", len(s.pods)), restored, "bare port made", insert)
	s.table.add(r.against("≤ 1000 ms", "not in 26 s"))
	return nil
}
