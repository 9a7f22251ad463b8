// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// restart measures the controller's start when all rows but one are as they are
// to be: the annotation of one pod has changed while it was down. The start is
// over when that is in the database, since the first pass looks at everything
// before it writes.
func (s *system) restart(ctx context.Context) error {
	progress("controller: restart at %d ports", len(s.pods))
	if err := s.running.stop(); err != nil {
		return err
	}
	if err := s.readdress(ctx, 1); err != nil {
		return err
	}
	reading, err := s.readAll(ctx)
	if err != nil {
		return err
	}
	before, err := s.nb.transactions()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.start(); err != nil {
		return err
	}
	var took time.Duration
	err = s.guarded(ctx, func(ctx context.Context) error {
		p, err := s.nb.ports.await(ctx, s.pods[0].port(), s.pods[0].pinned)
		took = p.at.Sub(began)
		if err != nil {
			return err
		}
		// Whatever the start has left to be done comes before this.
		if err := s.readdress(ctx, 2); err != nil {
			return err
		}
		_, err = s.nb.ports.await(ctx, s.pods[0].port(), s.pods[0].pinned)
		return err
	})
	if err != nil {
		return err
	}
	after, err := s.nb.transactions()
	if err != nil {
		return err
	}
	return s.tellRestart(took, reading, after-before-2)
}

// readdress changes the annotation of the first pod.
func (s *system) readdress(ctx context.Context, n int) error {
	a := &s.pods[0]
	a.addr = fmt.Sprintf("10.200.%d.%d", len(s.pods)/1000, n)
	return s.annotate(ctx, a.pod, a.leased())
}

// readAll is how long it takes to read pods, and names and addresses of rows, which is
// less than what the controller has to read.
func (s *system) readAll(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	if _, err := s.api.List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		return 0, err
	}
	nb, err := dialNorthbound(ctx, s.nb.endpoint)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, nb.close()) }()
	_, err = nb.ports.await(ctx, localnetPort, logicalPort.exists)
	return time.Since(began), err
}

func (s *system) tellRestart(took, reading time.Duration, transactions int) error {
	memory, err := s.running.peakMemory()
	if err != nil {
		return err
	}
	cpu, err := s.running.cpu()
	if err != nil {
		return err
	}
	name := func(what string) string { return fmt.Sprintf("restart with %d ports in step: %s", len(s.pods), what) }
	inStep := row{
		figure: name("time"), got: fmt.Sprintf("%.2f s", took.Seconds()),
		yardstick: fmt.Sprintf("reading pods and rows %.2f s", reading.Seconds()), ratio: times.Ratio(took, reading),
	}
	wrote := row{figure: name("transactions"), got: fmt.Sprint(transactions), goal: "0"}
	peak := row{figure: name("peak memory"), got: fmt.Sprintf("%d MiB", memory), goal: "≤ 120 MiB"}
	used := row{figure: name("CPU"), got: fmt.Sprintf("%.2f s", cpu.Seconds())}
	if len(s.pods) == 1000 {
		inStep = inStep.against("≤ 0.5 s", "1.0 s")
		wrote.upstream, peak.upstream = "1003", "250 MiB"
	}
	s.table.add(inStep, wrote, peak, used)
	return nil
}
