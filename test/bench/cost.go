// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// costSamples is how many pods are deleted and created again.
const costSamples = 200

// cost measures the processor time that the controller takes for a pod that is
// deleted and created.
func (s *system) cost(ctx context.Context) error {
	progress("controller: processor time at %d ports", len(s.pods))
	before, err := s.running.cpu()
	if err != nil {
		return err
	}
	err = s.guarded(ctx, func(ctx context.Context) error {
		for _, a := range s.pods[:costSamples] {
			if err := s.recreate(ctx, a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := s.running.cpu()
	if err != nil {
		return err
	}
	each := times.Milliseconds(after-before) / costSamples
	r := row{figure: fmt.Sprintf("CPU for a pod deleted and created, %d ports", len(s.pods)), got: fmt.Sprintf("%.2f ms", each)}
	if s.first.cost == 0 {
		s.first.cost = each
		s.table.add(r.against("", "5 ms at 1000"))
		return nil
	}
	r.yardstick, r.ratio = fmt.Sprintf("at the first size %.2f ms", s.first.cost), each/s.first.cost
	s.table.add(r.against("ratio about 1", "8 ms at 3000"))
	return nil
}

func (s *system) recreate(ctx context.Context, a attachment) error {
	if err := s.remove(ctx, a); err != nil {
		return err
	}
	if err := s.createPod(ctx, a.pod, a.leased()); err != nil {
		return err
	}
	_, err := s.nb.ports.await(ctx, a.port(), a.pinned)
	return err
}
