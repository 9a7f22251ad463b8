// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command leases measures the daemon "ovn-dhcp-ipam dhcp" beside the one in whose
// place it can be put, "dhcp daemon" of the CNI project's plugins, and beside a bare
// packet socket, which is the bound. All three are measured in the same run, on the same
// pods and with the same DHCP server.
//
//	leases BIN [PART...]
//
// BIN is the folder with the product's commands. The other daemon is what
// test/tools/build.sh has built. The parts are burst, single, held and renewal; all if
// none is named.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// timeLimit is for all of it.
const timeLimit = 3 * time.Minute

// diskDir is on a disk, as the directory of the records is in earnest: lab.Isolate's
// temporary directory is in memory, where writing costs nothing.
const diskDir = "/var/tmp"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "leases:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	if len(args) < 1 {
		return errors.New("usage: leases BIN [burst] [single] [held] [renewal]")
	}
	chosen, err := choose(args[1:])
	if err != nil {
		return err
	}
	if err := lab.Isolate(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done within %v", timeLimit))
	defer cancel()
	b := &bench{table: &table{}}
	if b.dir, err = os.MkdirTemp(diskDir, "ovn-dhcp-ipam-leases-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if err := b.find(ctx, args[0]); err != nil {
		return err
	}
	if err := b.measure(ctx, chosen); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return err
	}
	return b.table.print()
}

// bench is what every measurement needs.
type bench struct {
	dir            string // on a disk
	ours, upstream program
	network        *network
	server         *server
	table          *table
}

// find finds the two daemons.
func (b *bench) find(ctx context.Context, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	tools, err := kube.Tools(ctx)
	if err != nil {
		return err
	}
	b.ours = ours(filepath.Join(bin, "ovn-dhcp-ipam"))
	for _, dir := range filepath.SplitList(tools) {
		path := filepath.Join(dir, "dhcp")
		if _, err := os.Stat(path); err == nil {
			b.upstream = upstream(path)
			return nil
		}
	}
	return fmt.Errorf("there is no dhcp in %s", tools)
}

// part is a part of the measurements: it adds its rows to the table.
type part struct {
	name    string
	measure func(*bench, context.Context) error
}

func parts() []part {
	return []part{
		{"burst", (*bench).bursts},
		{"single", (*bench).single},
		{"held", (*bench).held},
		{"renewal", (*bench).renewals},
	}
}

func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		return parts(), nil
	}
	var chosen []part
	for _, name := range names {
		i := slices.IndexFunc(parts(), func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q", name)
		}
		chosen = append(chosen, parts()[i])
	}
	return chosen, nil
}

func (b *bench) measure(ctx context.Context, chosen []part) (err error) {
	if err := b.disk(); err != nil {
		return err
	}
	progress("making %d pods on a bridge", podCount)
	if b.network, err = newNetwork(podCount); err != nil {
		return err
	}
	b.server = &server{}
	defer func() { err = errors.Join(err, b.server.stop()) }()
	for _, p := range chosen {
		if err := p.measure(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
