// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/objects"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// common are the flags of every daemon.
type common struct {
	set        *flag.FlagSet
	about      string
	objects    string
	kubeconfig string
	pluginType string
	learn      string
	level      slog.Level
}

func newFlags(name, about string) *common {
	c := &common{set: flag.NewFlagSet("ovn-dhcp-ipam "+name, flag.ContinueOnError)}
	c.set.TextVar(&c.level, "log-level", slog.LevelInfo, "least `level` to log: debug, info, warn or error")
	c.set.SetOutput(io.Discard) // the error of a wrong flag is printed once, by main
	c.about = about
	return c
}

func (c *common) usage() {
	c.set.SetOutput(os.Stdout)
	fmt.Printf("%s\n\nUsage: %s [FLAGS]\n\nFlags:\n", c.about, c.set.Name())
	c.set.PrintDefaults()
}

// addSource adds the flags of where the objects are, and of which are served.
func (c *common) addSource(kubernetes bool) {
	c.set.StringVar(&c.pluginType, "plugin-type", controller.DefaultPluginType, "`type` of the network configurations to serve, which is the name of the plugin's program")
	c.set.StringVar(&c.learn, "learn", podnet.LearnAuto, "`source` of the addresses of virtual machines after the ADD, on networks whose NAD doesn't say: off, auto (the DHCP exchanges of their guests; for virtual functions ARP too) or all (ARP too); to be the same for node daemons and controllers")
	if !kubernetes {
		c.set.StringVar(&c.objects, "objects", "", "`directory` of Kubernetes objects, one file each (required)")
		return
	}
	c.set.StringVar(&c.objects, "objects", "", "`directory` of Kubernetes objects, one file each, to be used instead of the Kubernetes API")
	c.set.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the service account of the pod)")
}

// parse parses the arguments and makes the log.
func (c *common) parse(args []string) (*slog.Logger, error) {
	if err := c.set.Parse(args); errors.Is(err, flag.ErrHelp) {
		c.usage()
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w (\"%s -h\" lists the flags)", err, c.set.Name())
	}
	if c.set.Lookup("plugin-type") != nil && (c.pluginType == "" || c.pluginType != filepath.Base(c.pluginType)) {
		return nil, fmt.Errorf("flag --plugin-type: %q can't be the name of a program", c.pluginType)
	}
	if c.set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", c.set.Arg(0))
	}
	if c.learn != "" && !podnet.ValidLearn(c.learn) {
		return nil, fmt.Errorf("flag --learn: %q is not off, auto or all", c.learn)
	}
	if c.objects != "" && c.kubeconfig != "" {
		return nil, errors.New("flags --objects and --kubeconfig exclude each other")
	}
	handler := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.level})
	klog.SetLogger(logr.FromSlogHandler(handler))
	return slog.New(handler), nil
}

// source is where the objects are, as a daemon needs it.
type source struct {
	pods   cniserver.Pods
	follow func(zone string) (controller.Source, error)
	// cluster is the cluster's identity, as the source knows it.
	cluster func(ctx context.Context) (string, error)
	// kube is nil with a directory of objects.
	kube *kube.Client
}

func (c *common) source(component string, log *slog.Logger) (source, error) {
	if c.objects != "" {
		dir, err := objects.Open(objects.Config{Path: c.objects, Log: log})
		if err != nil {
			return source{}, fmt.Errorf("flag --objects: %w", err)
		}
		return source{
			pods:    dir,
			follow:  func(string) (controller.Source, error) { return dir, nil },
			cluster: func(context.Context) (string, error) { return machineID() },
		}, nil
	}
	client, err := kube.New(kube.Config{Kubeconfig: c.kubeconfig, Component: component, Log: log})
	if err != nil {
		return source{}, fmt.Errorf("neither flag --objects nor --kubeconfig nor a service account leads to the objects: %w", err)
	}
	return source{
		pods:    client,
		follow:  func(zone string) (controller.Source, error) { return client.NewSource(zone), nil },
		cluster: client.ClusterID,
		kube:    client,
	}, nil
}
