// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command leases measures the daemon "ovn-dhcp-ipam dhcp" beside the one in whose
// place it can be put, "dhcp daemon" of the CNI project's plugins, and beside a bare
// packet socket, which is the bound. All three are measured in the same run, on the same
// pods and with the same DHCP server.
//
// A call of the plugin is net/rpc over a new connection, which alone takes longer than
// the messages of DHCP do. So like is put beside like: the daemons beside the bare socket
// behind that same call, and the product's engine, the dhcp.Keeper that is in its daemon,
// beside the bare socket in one process.
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
	"path/filepath"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/session"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
)

// timeLimit is for all of it.
const timeLimit = 5 * time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "leases:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	if len(args) == 2 && args[0] == bareCommand {
		return serveBare(args[1])
	}
	if len(args) < 1 {
		return errors.New("usage: leases BIN [burst] [single] [held] [renewal]")
	}
	b := &bench{table: &table{}}
	chosen, err := session.Choose(b.parts(), args[1:])
	if err != nil {
		return err
	}
	ctx, stop, err := session.Start(timeLimit)
	if err != nil {
		return err
	}
	defer stop()
	if b.dir, err = newDisk(ctx); err != nil {
		return err
	}
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
	dir                  string // on a disk
	ours, upstream, bare program
	network              *network
	server               *server
	table                *table
}

// find finds those that are called.
func (b *bench) find(ctx context.Context, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	tools, err := kube.Tools(ctx)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.ours, b.bare = ours(filepath.Join(bin, "ovn-dhcp-ipam")), servedBare(self)
	for _, dir := range filepath.SplitList(tools) {
		path := filepath.Join(dir, "dhcp")
		if _, err := os.Stat(path); err == nil {
			b.upstream = upstream(path)
			return nil
		}
	}
	return fmt.Errorf("there is no dhcp in %s", tools)
}

// parts are the measurements, each of which adds its rows to the table.
func (b *bench) parts() []session.Part {
	return []session.Part{
		{Name: "burst", Measure: b.bursts},
		{Name: "single", Measure: b.single},
		{Name: "held", Measure: b.held},
		{Name: "renewal", Measure: b.renewals},
	}
}

func (b *bench) measure(ctx context.Context, chosen []session.Part) (err error) {
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
		if err := p.Measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}
