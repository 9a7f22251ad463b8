// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller"
)

func runController(ctx context.Context, args []string) error {
	var cfg controller.Config
	flags := newFlags("controller", "Keep OVN's northbound database in step with the pods.")
	flags.set.StringVar(&cfg.NB, "nb", "unix:/var/run/ovn/ovnnb_db.sock", "`endpoints` of the northbound database, a comma list")
	log, dir, err := flags.parse(args)
	if err != nil {
		return err
	}
	cfg.PluginType, cfg.Source, cfg.Log = flags.pluginType, dir, log
	c, err := controller.New(cfg)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
