// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
)

func runNode(ctx context.Context, args []string) error {
	var cfg cniserver.Config
	flags := newFlags("node", "Serve the CNI plugin's calls on this node.")
	flags.set.StringVar(&cfg.Socket, "cni-socket", wire.SocketPath, "unix socket to listen on")
	flags.set.StringVar(&cfg.StateDir, "state-dir", "/var/lib/ovn-dhcp-ipam", "`directory` for the records of attachments and leases")
	flags.set.StringVar(&cfg.NodeName, "node-name", "", "this node's name in the API (default: the host's name)")
	flags.set.StringVar(&cfg.ClusterID, "cluster-id", "", "identity of the cluster, from which MAC addresses derive (default: the machine's id)")
	flags.set.StringVar(&cfg.OVSDB, "ovs-db", "unix:/var/run/openvswitch/db.sock", "`endpoint` of the Open_vSwitch database")
	flags.set.DurationVar(&cfg.AddTimeout, "add-timeout", 45*time.Second, "time for one ADD")
	flags.set.DurationVar(&cfg.InstallTimeout, "install-timeout", 20*time.Second, "time of an ADD for OVN to install the port")
	log, dir, err := flags.parse(args)
	if err != nil {
		return err
	}
	cfg.PluginType, cfg.Pods, cfg.Log = flags.pluginType, dir, log
	if cfg.NodeName == "" {
		if cfg.NodeName, err = os.Hostname(); err != nil {
			return fmt.Errorf("flag --node-name is not given, and the host has no name: %w", err)
		}
	}
	if cfg.ClusterID == "" {
		id, err := os.ReadFile("/etc/machine-id")
		if err != nil {
			return fmt.Errorf("flag --cluster-id is not given, and the machine has no id: %w", err)
		}
		cfg.ClusterID = strings.TrimSpace(string(id))
	}
	server, err := cniserver.New(cfg)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
