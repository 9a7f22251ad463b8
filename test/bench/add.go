// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

const (
	// addSamples is how many pods are attached, one by one and then again
	// addParallel at a time.
	addSamples  = 50
	addParallel = 8
)

// add measures the calls of the CNI plugin on a node with OVN and a DHCP server.
func (b *bench) add(ctx context.Context) (err error) {
	progress("starting etcd, kube-apiserver, OVN, a node and a DHCP server")
	s, err := b.install(ctx, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	c := &containers{installation: s, network: s.LAN()}
	if err := s.PutNetwork(c.network); err != nil {
		return err
	}
	t := table{title: "ADD and DEL: the Kubernetes API, one node, OVN, a DHCP server"}
	if err := c.measure(ctx, b.program("ovn-k8s-cni-overlay"), &t); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs())
	}
	return t.print()
}

func (c *containers) measure(ctx context.Context, plugin string, t *table) error {
	// The first one finds nothing ready.
	if _, _, err := c.live(ctx, "first", 1, 1, nil); err != nil {
		return err
	}
	progress("%d ADDs and DELs one by one, and the same with other tools", addSamples)
	var y yardsticks
	adds, dels, err := c.live(ctx, "one", addSamples, 1, func(pods []pod) (err error) {
		y, err = c.yardsticks(ctx, pods, plugin)
		return err
	})
	if err != nil {
		return err
	}
	steps, rest, err := c.steps(adds)
	if err != nil {
		return err
	}
	progress("%d ADDs and DELs, %d at a time", addSamples, addParallel)
	manyAdds, manyDels, err := c.live(ctx, "many", addSamples, addParallel, nil)
	if err != nil {
		return err
	}
	t.add(latency("ADD", adds.times(), "OVN's tools and udhcpc", y.tools.all))
	for _, s := range steps {
		t.add(y.row(s))
	}
	t.add(
		latency("  the rest: plugin, socket, checks", rest, "VERSION of the plugin", y.version),
		latency("DEL", dels.times(), "port removed by OVN's tools", y.tools.removal),
		latency(fmt.Sprintf("ADD, %d at a time", addParallel), manyAdds.times(), "one by one", adds.times()),
		latency(fmt.Sprintf("DEL, %d at a time", addParallel), manyDels.times(), "one by one", dels.times()),
	)
	return nil
}

// yardsticks are what the parts of an ADD are held against.
type yardsticks struct {
	patch, version times.Times
	tools          toolTimes
}

func (c *containers) yardsticks(ctx context.Context, pods []pod, plugin string) (y yardsticks, err error) {
	if y.patch, err = c.patch(ctx, pods); err != nil {
		return y, err
	}
	if y.version, err = c.version(ctx, plugin); err != nil {
		return y, err
	}
	y.tools, err = c.attachByTools(ctx)
	return y, err
}

// row is that of a step of the ADD.
func (y yardsticks) row(s step) row {
	figure := "  " + s.name
	switch s.name {
	case "announce MAC", "publish address":
		return latency(figure, s.times, "one patch of a pod", y.patch)
	case "await OVN":
		return latency(figure, s.times, "port by OVN's tools", y.tools.port)
	case "acquire lease":
		return latency(figure, s.times, "udhcpc", y.tools.lease)
	}
	return row{figure: figure, got: percentiles(s.times)}
}
