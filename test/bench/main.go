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
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
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

// part is a part of the measurements, with a table of its own.
type part struct {
	name    string
	measure func(*bench, context.Context) error
	// named is a part of another one, measured alone when it is named.
	named bool
}

func parts() []part {
	return []part{
		{name: "shim", measure: (*bench).shim},
		{name: "add", measure: (*bench).add},
		{name: "learn", measure: (*bench).learn},
		{name: "controller", measure: (*bench).controller},
		{name: "policies", measure: (*bench).policies},
		{name: "enforce", measure: (*bench).enforce},
		{name: "latency", measure: (*bench).latency, named: true},
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: bench BIN HELLO [shim] [add] [learn] [controller] [policies] [enforce] [latency]")
	}
	chosen, err := choose(args[2:])
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
	b := &bench{}
	if b.bin, err = filepath.Abs(args[0]); err != nil {
		return err
	}
	if b.hello, err = filepath.Abs(args[1]); err != nil {
		return err
	}
	return b.run(ctx, chosen)
}

func choose(names []string) ([]part, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(parts(), func(p part) bool { return p.named }), nil
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

func (b *bench) run(ctx context.Context, chosen []part) error {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	fmt.Printf("%d processors, load average before: %s", runtime.NumCPU(), load)
	for _, p := range chosen {
		if err := p.measure(b, ctx); err != nil {
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// program is the path of one of the product's commands.
func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }
