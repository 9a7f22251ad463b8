// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command ovn-dhcp-ipam holds the daemons: node on each node, and controller
// beside OVN's databases; standalone, which is both; and dhcp, in the place of the
// CNI dhcp plugin's daemon.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// command is a subcommand. run parses its own arguments.
type command struct {
	name, summary string
	run           func(ctx context.Context, args []string) error
}

func commands() []command {
	return []command{
		{"node", "serve the CNI plugin's calls on this node", runNode},
		{"dhcp", "serve the CNI plugin dhcp, for networks of other plugins", runDHCP},
		{"controller", "keep OVN's northbound database in step with the pods", runController},
		{"standalone", "run both in one process, on a directory of objects", runStandalone},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ovn-dhcp-ipam:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		usage(os.Stderr)
		return errors.New("no command given")
	}
	if args[0] == "version" {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return errors.New("the program was built without its version")
		}
		fmt.Println("ovn-dhcp-ipam", info.Main.Version, info.GoVersion)
		return nil
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		usage(os.Stdout)
		return nil
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, args[1:])
		if errors.Is(err, flag.ErrHelp) || errors.Is(err, context.Canceled) && ctx.Err() != nil {
			return nil
		}
		return err
	}
	usage(os.Stderr)
	return fmt.Errorf("unknown command %q", args[0])
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "Addresses from the site's DHCP server for pods on OVN localnet networks.\n\nUsage: ovn-dhcp-ipam COMMAND [FLAGS]\n\nCommands:")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-12s%s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "  %-12s%s\n", "version", "print the version")
	fmt.Fprintln(w, "\n\"ovn-dhcp-ipam COMMAND -h\" lists the flags of a command.")
}
