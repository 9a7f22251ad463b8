// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the product on real parts and prints each figure
// beside a yardstick that was measured in the same run: what the same thing
// costs without the product. Only their ratio can be compared between machines.
//
//	bench BIN HELLO [PART...]
//
// BIN is the folder with the product's commands, HELLO the program of
// test/bench/hello, built like them. The parts are shim, add, learn, controller,
// policies and enforce, all if none is named; latency is the controller's single
// changes alone. It is run as root, in the module's root folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/session"
)

// timeLimit is for all parts together.
const timeLimit = 10 * time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is what the parts need.
type bench struct {
	bin   string // folder with the product's commands
	hello string // program
}

// parts are the measurements, each of which prints a table of its own.
func (b *bench) parts() []session.Part {
	return []session.Part{
		{Name: "shim", Measure: b.shim},
		{Name: "add", Measure: b.add},
		{Name: "learn", Measure: b.learn},
		{Name: "controller", Measure: b.controller},
		{Name: "policies", Measure: b.policies},
		{Name: "enforce", Measure: b.enforce},
		{Name: "latency", Measure: b.latency, OnlyNamed: true},
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: bench BIN HELLO [shim] [add] [learn] [controller] [policies] [enforce] [latency]")
	}
	b := &bench{}
	chosen, err := session.Choose(b.parts(), args[2:])
	if err != nil {
		return err
	}
	ctx, stop, err := session.Start(timeLimit)
	if err != nil {
		return err
	}
	defer stop()
	if b.bin, err = filepath.Abs(args[0]); err != nil {
		return err
	}
	if b.hello, err = filepath.Abs(args[1]); err != nil {
		return err
	}
	return b.run(ctx, chosen)
}

func (b *bench) run(ctx context.Context, chosen []session.Part) error {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	fmt.Printf("%d processors, load average before: %s", runtime.NumCPU(), load)
	for _, p := range chosen {
		if err := p.Measure(ctx); err != nil {
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

// program is the path of one of the product's commands.
func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }
