// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller"
)

// runStandalone runs both daemons in one process, for a host without Kubernetes.
func runStandalone(ctx context.Context, args []string) error {
	flags := newFlags("standalone", "Run the node daemon and the controller in one process, on a directory of objects.")
	flags.addSource(false)
	nodeConfig, controllerConfig, metrics := addNodeFlags(flags), addControllerFlags(flags), flags.addMetrics()
	log, err := flags.parse(args)
	if err != nil {
		return err
	}
	if flags.objects == "" {
		return errObjectsMissing
	}
	from, err := flags.source("ovn-dhcp-ipam", log)
	if err != nil {
		return err
	}
	nodeConfig.Log, nodeConfig.Pods = log, metrics.count(from.pods)
	controllerConfig.Log, controllerConfig.Metrics = log, metrics.registry
	server, err := newServer(ctx, nodeConfig, flags, from)
	if err != nil {
		return err
	}
	controllerConfig.PluginType, controllerConfig.Learn, controllerConfig.AnnotatePod = flags.pluginType, flags.learn, from.pods.AnnotatePod
	if controllerConfig.Source, err = from.follow(""); err != nil {
		return err
	}
	c, err := controller.New(*controllerConfig)
	if err != nil {
		return err
	}
	return metrics.run(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return server.Run(ctx) })
		g.Go(func() error { return c.Run(ctx) })
		return g.Wait()
	})
}
