// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/objects"
)

// defaultPluginType is the CNI plugin's name in network configurations.
const defaultPluginType = "ovn-k8s-cni-overlay"

// common are the flags of every daemon.
type common struct {
	set        *flag.FlagSet
	objects    string
	pluginType string
	level      slog.Level
}

func newFlags(name, about string) *common {
	c := &common{set: flag.NewFlagSet("ovn-dhcp-ipam "+name, flag.ContinueOnError)}
	c.set.StringVar(&c.objects, "objects", "", "`directory` of Kubernetes objects, one file each (required)")
	c.set.StringVar(&c.pluginType, "plugin-type", defaultPluginType, "\"type\" of the network configurations to serve")
	c.set.TextVar(&c.level, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	c.set.Usage = func() {
		fmt.Fprintf(c.set.Output(), "%s\n\nUsage: %s [FLAGS]\n\nFlags:\n", about, c.set.Name())
		c.set.PrintDefaults()
	}
	return c
}

// parse parses the arguments and opens what every daemon needs.
func (c *common) parse(args []string) (*slog.Logger, *objects.Dir, error) {
	if err := c.set.Parse(args); err != nil {
		return nil, nil, err
	}
	if c.set.NArg() > 0 {
		return nil, nil, fmt.Errorf("unexpected argument %q", c.set.Arg(0))
	}
	if c.objects == "" {
		return nil, nil, errors.New("flag --objects: a directory of Kubernetes objects must be given")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.level}))
	dir, err := objects.Open(objects.Config{Path: c.objects, Log: log})
	if err != nil {
		return nil, nil, fmt.Errorf("flag --objects: %w", err)
	}
	return log, dir, nil
}
