// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// node is the node that all pods are on.
const node = "node1"

// system is the controller between the Kubernetes API and a northbound database
// with nothing behind it: ovn-northd would take one processor for itself.
type system struct {
	*cluster
	nb      *northbound
	command func() *exec.Cmd // the controller
	log     string
	running *process
	// pods are what is to be in the database.
	pods []attachment
	// table is filled by the measurements.
	table table
	// first are figures at the smallest size, which others are held against.
	first struct {
		announced, cost           float64
		readdressed, readdressing time.Duration
	}
	// policies is how many there are.
	policies int
}

// size is a number of ports, and what is measured when there are so many.
type size struct {
	ports   int
	measure []func(*system, context.Context) error
}

// controller measures the controller on one network that grows.
func (b *bench) controller(ctx context.Context) error {
	all := []func(*system, context.Context) error{(*system).latency, (*system).cost, (*system).restart, (*system).restoration}
	return b.growing(ctx, []size{{1000, all}, {3000, []func(*system, context.Context) error{(*system).cost}}, {5000, all}})
}

// latency measures how long single changes take, and no more.
func (b *bench) latency(ctx context.Context) error {
	one := []func(*system, context.Context) error{(*system).latency}
	return b.growing(ctx, []size{{1000, one}, {5000, one}})
}

// growing measures the controller at each size.
func (b *bench) growing(ctx context.Context, sizes []size) (err error) {
	progress("starting etcd, kube-apiserver and the northbound database")
	l, err := lab.Start(ctx, lab.Options{NBOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	c, stop, err := newCluster(ctx, "physnet")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	nb, err := dialNorthbound(ctx, l.NB)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nb.close()) }()
	s := &system{
		cluster: c, nb: nb, log: filepath.Join(l.Dir, "controller.log"),
		command: func() *exec.Cmd {
			return exec.Command(b.program("ovn-dhcp-ipam"), "controller", "--nb", l.NB,
				"--kubeconfig", c.kubeconfig, "--leader-elect-resource-namespace", namespace)
		},
		table: table{title: "The controller: pods of the Kubernetes API on one network, a northbound database without ovn-northd"},
	}
	if err := s.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.running.stop()) }()
	if err := s.grown(ctx, sizes); err != nil {
		return err
	}
	return s.table.print()
}

// start starts the controller; running is the one before if it can't be started.
func (s *system) start() error {
	p, err := start(s.command(), s.log)
	if err == nil {
		s.running = p
	}
	return err
}

// grown takes the figures at each size.
func (s *system) grown(ctx context.Context, sizes []size) error {
	if err := s.guarded(ctx, s.join); err != nil {
		return err
	}
	for _, step := range sizes {
		progress("controller: growing to %d pods", step.ports)
		if err := s.guarded(ctx, func(ctx context.Context) error { return s.burst(ctx, step.ports) }); err != nil {
			return err
		}
		for _, measure := range step.measure {
			if err := measure(s, ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// stepTimeout is for one measurement, none of which takes half a minute.
const stepTimeout = 2 * time.Minute

// guarded does something that comes to an end only while the controller runs.
func (s *system) guarded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("not done within %v", stepTimeout))
	defer cancel()
	ctx, end := s.running.Guard(ctx)
	defer end()
	err := do(ctx)
	if err != nil {
		log, _ := os.ReadFile(s.log)
		err = fmt.Errorf("%w; the controller's log:\n%s", err, log)
	}
	return err
}

// join waits for the network's switch.
func (s *system) join(ctx context.Context) error {
	if _, err := s.nb.ports.await(ctx, localnetPort, logicalPort.exists); err != nil {
		return err
	}
	return s.nb.find(ctx, switchName)
}
