// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo runs a site that stays up: a two-node lab with a DHCP server, the
// product's daemons, and two pods.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: demo up|serve|down LAB_DIR BIN_DIR")
	}
	f := folder(args[1])
	switch args[0] {
	case "up":
		return up(f, args[2])
	case "serve":
		return serve(f, args[2])
	case "down":
		return down(f)
	}
	return fmt.Errorf("unknown command %q", args[0])
}
