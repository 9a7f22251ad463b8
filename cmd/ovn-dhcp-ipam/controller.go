// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/kube"
)

var errObjectsMissing = errors.New("flag --objects: a directory of Kubernetes objects must be given")

func runController(ctx context.Context, args []string) error {
	flags := newFlags("controller", "Keep OVN's northbound database in step with the pods.")
	flags.addSource(true)
	cfg := addControllerFlags(flags)
	metrics := flags.addMetrics()
	var elect bool
	election := kube.Election{Name: "ovn-dhcp-ipam-controller"}
	flags.set.StringVar(&cfg.Zone, "zone", "", "`zone` of nodes whose northbound database this is, where each zone has one")
	flags.set.BoolVar(&elect, "leader-elect", true, "with the Kubernetes API, have one of several controllers lead")
	flags.set.StringVar(&election.Namespace, "leader-elect-resource-namespace", "ovn-dhcp-ipam", "`namespace` of the leader election's Lease")
	flags.set.DurationVar(&election.Duration, "leader-elect-lease-duration", 15*time.Second, "time after which a leader that is not heard of is replaced")
	log, err := flags.parse(args)
	if err != nil {
		return err
	}
	from, err := flags.source("ovn-dhcp-ipam-controller", log)
	if err != nil {
		return err
	}
	cfg.PluginType, cfg.Learn, cfg.Log = flags.pluginType, flags.learn, log
	cfg.AnnotatePod, cfg.Metrics = from.pods.AnnotatePod, metrics.registry
	if cfg.Source, err = from.follow(cfg.Zone); err != nil {
		return err
	}
	if elect && from.kube != nil {
		return metrics.run(ctx, func(ctx context.Context) error { return lead(ctx, *cfg, election, from.kube) })
	}
	c, err := controller.New(*cfg)
	if err != nil {
		return err
	}
	return metrics.run(ctx, c.Run)
}

// lead runs the controller when this process is elected.
func lead(ctx context.Context, cfg controller.Config, election kube.Election, client *kube.Client) error {
	if cfg.Zone != "" {
		election.Name += "-" + cfg.Zone
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of the host: %w", err)
	}
	election.Identity = host + "_" + uuid.NewString()
	cfg.Leader = election.Identity
	cfg.Elected = func(ctx context.Context) (bool, error) { return client.Elected(ctx, election) }
	c, err := controller.New(cfg)
	if err != nil {
		return err
	}
	return client.Lead(ctx, election, c.Run)
}

// addControllerFlags adds the flags of the controller.
func addControllerFlags(flags *common) *controller.Config {
	cfg := &controller.Config{}
	flags.set.StringVar(&cfg.NB, "nb", "unix:/var/run/ovn/ovnnb_db.sock", "`endpoints` of the northbound database, a comma list: unix:PATH, tcp:HOST:PORT, ssl:HOST:PORT")
	flags.set.StringVar(&cfg.SB, "sb", "", "`endpoints` of the southbound database, in the same form; without it no address is learned from ARP, and where ports are bound is not checked")
	flags.set.StringVar(&cfg.PrivateKey, "nb-client-privkey", "", "PEM `file` with the private key for ssl endpoints, of both databases")
	flags.set.StringVar(&cfg.Certificate, "nb-client-cert", "", "PEM `file` with the certificate for ssl endpoints, of both databases")
	flags.set.StringVar(&cfg.CACert, "nb-client-cacert", "", "PEM `file` with the authority that has issued the certificates of both databases' servers")
	return cfg
}
