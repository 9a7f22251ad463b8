// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// toolSamples is how many attachments are made by other tools.
const toolSamples = 20

// toolTimes are the times of attachments that OVN's command line tools and
// busybox make and remove.
type toolTimes struct {
	port    times.Times // logical port and OVS port, until OVN has installed them
	lease   times.Times
	all     times.Times // both
	removal times.Times // of the ports
}

// attachByTools makes attachments to the network, one by one.
func (c *containers) attachByTools(ctx context.Context) (toolTimes, error) {
	var t toolTimes
	for i := range toolSamples {
		name, mac := fmt.Sprintf("bare%d", i), fmt.Sprintf("0a:58:ff:00:00:%02x", i)
		began := time.Now()
		if err := c.portByTools(ctx, name, mac); err != nil {
			return t, err
		}
		installed := time.Now()
		// Of a lost frame udhcpc thinks for a second.
		lease := c.Lab.Nodes[0].Command(ctx, "busybox", "udhcpc", "-i", name, "-n", "-q", "-f", "-T", "1", "-s", "/bin/true")
		if err := quiet(lease); err != nil {
			return t, err
		}
		leased := time.Now()
		if _, err := c.Lab.Nodes[0].Vsctl(ctx, "del-port", "br-int", name); err != nil {
			return t, err
		}
		if _, err := c.Lab.Nbctl(ctx, "lsp-del", name); err != nil {
			return t, err
		}
		t.port = append(t.port, installed.Sub(began))
		t.lease = append(t.lease, leased.Sub(installed))
		t.all = append(t.all, leased.Sub(began))
		t.removal = append(t.removal, time.Since(leased))
	}
	return t, nil
}

// portByTools makes a port whose device stays in the node.
func (c *containers) portByTools(ctx context.Context, name, mac string) error {
	if _, err := c.Lab.Nbctl(ctx, "lsp-add", switchName, name, "--", "lsp-set-addresses", name, mac); err != nil {
		return err
	}
	if _, err := c.Lab.Nodes[0].Vsctl(ctx, "add-port", "br-int", name, "--", "set", "Interface", name, "type=internal",
		fmt.Sprintf("mac=%q", mac), "external_ids:iface-id="+name); err != nil {
		return err
	}
	if err := quiet(c.Lab.Nodes[0].Command(ctx, "ip", "link", "set", name, "up")); err != nil {
		return err
	}
	_, err := c.Lab.Nodes[0].Vsctl(ctx, "wait-until", "Interface", name, "external_ids:ovn-installed=true")
	return err
}

// quiet runs a command whose output matters only when it fails.
func quiet(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}
