// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

func runNode(ctx context.Context, args []string) error {
	flags := newFlags("node", "Serve the CNI plugin's calls on this node.")
	flags.addSource(true)
	cfg, metrics := addNodeFlags(flags), flags.addMetrics()
	log, err := flags.parse(args)
	if err != nil {
		return err
	}
	from, err := flags.source("ovn-dhcp-ipam-node", log)
	if err != nil {
		return err
	}
	cfg.Log, cfg.Pods = log, metrics.count(from.pods)
	server, err := newServer(ctx, cfg, flags, from)
	if err != nil {
		return err
	}
	return metrics.run(ctx, server.Run)
}

// addNodeFlags adds the flags of the node daemon.
func addNodeFlags(flags *common) *cniserver.Config {
	cfg := &cniserver.Config{}
	flags.set.StringVar(&cfg.Socket, "cni-socket", "", "unix `socket` to listen on (default: where the plugin of this type looks for it)")
	flags.set.StringVar(&cfg.StateDir, "state-dir", "/var/lib/ovn-dhcp-ipam", "`directory` for the records of attachments, leases and hand-offs of virtual functions")
	flags.set.StringVar(&cfg.NodeName, "node-name", "", "this node's `name` in the API (default: the host's name)")
	flags.set.StringVar(&cfg.ClusterID, "cluster-id", "", "`identity` of the cluster, from which MAC addresses derive (default: the UID of namespace kube-system; with --objects, the machine's id)")
	flags.set.StringVar(&cfg.OVSDB, "ovs-db", "unix:/var/run/openvswitch/db.sock", "`endpoint` of the Open_vSwitch database")
	flags.set.DurationVar(&cfg.AddTimeout, "add-timeout", 45*time.Second, "time for one ADD, more than --install-timeout")
	flags.set.DurationVar(&cfg.InstallTimeout, "install-timeout", 20*time.Second, "time of an ADD for OVN to install the port")
	flags.set.Func("dhcp", "`who` gets the leases of pods: internal (the default), external, which is the CNI dhcp plugin with its daemon, or the path of such a plugin", func(value string) error {
		switch {
		case value == "internal":
			cfg.ExternalDHCP = ""
		case value == "external":
			cfg.ExternalDHCP = "/opt/cni/bin/dhcp"
		case filepath.IsAbs(value):
			cfg.ExternalDHCP = value
		default:
			return errors.New("must be internal, external, or the absolute path of a CNI dhcp plugin")
		}
		return nil
	})
	flags.set.BoolVar(&cfg.Probe, "probe", false, probeUsage+"; for pods, not for guests")
	cfg.Representors = map[string]string{}
	flags.set.Func("representor", "`PCI=IFNAME`, the interface on this node that stands for the virtual function at a PCI address, where the NIC doesn't tell (can be repeated)", func(value string) error {
		pci, ifname, ok := strings.Cut(value, "=")
		if !ok || ifname == "" || !podnet.IsPCIAddress(pci) {
			return errors.New("must be PCI=IFNAME, as 0000:3b:10.2=ens1f0_2")
		}
		cfg.Representors[pci] = ifname
		return nil
	})
	flags.set.StringVar(&cfg.Sysfs, "sysfs", "/sys", "`directory` at which the node's sysfs is mounted")
	flags.set.StringVar(&cfg.Proc, "proc", "/proc", "`directory` at which a procfs with the node's processes is mounted: all of them, or no function on vfio-pci is handed over")
	return cfg
}

// newServer makes the node daemon's server; what flags left open it finds out.
func newServer(ctx context.Context, cfg *cniserver.Config, flags *common, from source) (*cniserver.Server, error) {
	var err error
	if cfg.NodeName == "" {
		if cfg.NodeName, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("flag --node-name is not given, and the host has no name: %w", err)
		}
	}
	if cfg.ClusterID == "" {
		if cfg.ClusterID, err = from.cluster(ctx); err != nil {
			return nil, fmt.Errorf("flag --cluster-id is not given: %w", err)
		}
	}
	if cfg.Socket == "" {
		cfg.Socket = wire.SocketPath(flags.pluginType)
	}
	cfg.PluginType, cfg.Learn = flags.pluginType, flags.learn
	if cfg.InstallTimeout <= 0 || cfg.AddTimeout <= cfg.InstallTimeout {
		return nil, fmt.Errorf("flag --add-timeout: %v is not more than --install-timeout, %v, or that is not more than 0", cfg.AddTimeout, cfg.InstallTimeout)
	}
	if cfg.Probe && cfg.ExternalDHCP != "" {
		return nil, errors.New("flag --probe goes with --dhcp internal only: the CNI dhcp plugin does not probe")
	}
	return cniserver.New(*cfg)
}

func machineID() (string, error) {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return "", fmt.Errorf("the machine has no id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
