// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

const (
	// latencySamples is how many pods come and go one by one.
	latencySamples = 100
	// firstSample is the number of the first of them.
	firstSample = 1 << 20
	// bare is the name of a port that no pod has.
	bare = "bare"
)

// latencies are the times of one kind of change.
type latencies struct {
	seen     times.Times // from the moment that a watch tells of the annotation
	returned times.Times // from the end of the call that changed it
	call     times.Times
}

// latency measures how long the database takes to follow an annotation, with
// one change at a time.
func (s *system) latency(ctx context.Context) error {
	progress("controller: single changes at %d ports", len(s.pods))
	var announced, leased latencies
	var insert, update, floor times.Times
	err := s.guarded(ctx, func(ctx context.Context) error {
		for i := range latencySamples {
			a := attachmentOf(firstSample + i)
			if err := s.follow(ctx, a, &announced, &leased); err != nil {
				return err
			}
			if err := s.floor(ctx, a, &floor); err != nil {
				return err
			}
			if err := s.bare(ctx, a, &insert, &update); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	goal, upstream := "≤ 1.00 ms", "1.0–1.4 ms"
	if at := s.first.announced; at > 0 {
		goal, upstream = fmt.Sprintf("≤ 1.5 × %.2f ms", at), "2–3 ms"
	} else {
		s.first.announced = times.Milliseconds(announced.seen.Median())
	}
	at := fmt.Sprintf(", %d ports", len(s.pods))
	s.table.add(
		latency("annotation seen → port made"+at, announced.seen, "bare port made", insert).against(goal, upstream),
		latency("the same, but another annotation seen → bare port made"+at, floor, "bare port made", insert),
		latency("annotation seen → address in the port"+at, leased.seen, "bare port changed", update),
		latency("patch returned → port made"+at, announced.returned, "the patch itself", announced.call),
		latency("patch returned → address in the port"+at, leased.returned, "the patch itself", leased.call),
	)
	return nil
}

// follow has a pod come, get a MAC address and a lease, and go.
func (s *system) follow(ctx context.Context, a attachment, announced, leased *latencies) error {
	if err := s.createPod(ctx, a.pod, ""); err != nil {
		return err
	}
	if _, err := s.seen.await(ctx, a.pod, annotated("")); err != nil {
		return err
	}
	opened := func(p logicalPort) bool { return p.has(a.mac) }
	if err := s.change(ctx, a, a.announced(), opened, announced); err != nil {
		return err
	}
	if err := s.change(ctx, a, a.leased(), a.pinned, leased); err != nil {
		return err
	}
	return s.remove(ctx, a)
}

// change changes a pod's annotation, and notes how long its port took to follow.
func (s *system) change(ctx context.Context, a attachment, networks string, followed func(logicalPort) bool, to *latencies) error {
	began := time.Now()
	if err := s.annotate(ctx, a.pod, networks); err != nil {
		return err
	}
	returned := time.Now()
	seen, err := s.seen.await(ctx, a.pod, annotated(networks))
	if err != nil {
		return err
	}
	port, err := s.nb.ports.await(ctx, a.port(), followed)
	to.call = append(to.call, returned.Sub(began))
	to.returned = append(to.returned, port.at.Sub(returned))
	to.seen = append(to.seen, port.at.Sub(seen.at))
	return err
}

// remove deletes a pod and returns when its port has gone.
func (s *system) remove(ctx context.Context, a attachment) error {
	if err := s.deletePod(ctx, a.pod); err != nil {
		return err
	}
	_, err := s.nb.ports.await(ctx, a.port(), logicalPort.gone)
	return err
}

// floor is what change can't be faster than: another annotation changes, in which
// the controller has no interest, and who sees that makes a bare port at once. The
// API is as busy with the change then as it is with that of an annotation.
func (s *system) floor(ctx context.Context, a attachment, to *times.Times) error {
	pod, value := s.pods[0].pod, a.pod
	called := make(chan error, 1)
	go func() { called <- s.patch(ctx, pod, note, value) }()
	seen, err := s.seen.await(ctx, pod, func(pod *corev1.Pod) bool { return pod != nil && pod.Annotations[note] == value })
	if err != nil {
		return err
	}
	if _, err := s.nb.insert(ctx, bare, a.mac); err != nil {
		return err
	}
	made, _ := s.nb.ports.get(bare)
	*to = append(*to, made.at.Sub(seen.at))
	_, err = s.nb.remove(ctx, bare, logicalPort.gone)
	return errors.Join(<-called, err)
}

// bare writes what the controller would write, without it.
func (s *system) bare(ctx context.Context, a attachment, insert, update *times.Times) error {
	inserted, err := s.nb.insert(ctx, bare, a.mac)
	if err != nil {
		return err
	}
	updated, err := s.nb.update(ctx, bare, a.mac+" "+a.addr)
	if err != nil {
		return err
	}
	*insert, *update = append(*insert, inserted), append(*update, updated)
	_, err = s.nb.remove(ctx, bare, logicalPort.gone)
	return err
}
