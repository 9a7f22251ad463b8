// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp/cnirpc"
)

// burstPercent is the runtime's GOGC, if nobody has set it. The heap is so small that by
// default a collection would follow every few dozen calls, in the middle of a burst; the
// server gives back what a burst has taken when it is over.
const burstPercent = 200

// probeUsage is the help of the flag --probe.
const probeUsage = "before an address is taken, ask by ARP whether somebody uses it, and decline it if so; takes half a second"

// runDHCP is the daemon of the CNI plugin dhcp.
func runDHCP(ctx context.Context, args []string) error {
	flags := newFlags("dhcp", "Serve the CNI plugin dhcp, in the place of \"dhcp daemon\". A socket from systemd is used if there is one.")
	var socket string
	var cfg cnirpc.Config
	flags.set.StringVar(&socket, "socket", cnirpc.DefaultSocket, "unix `socket` to listen on")
	flags.set.StringVar(&cfg.HostPrefix, "host-prefix", "", "`directory` where the host's root directory is found: comes before the paths of the socket and of network namespaces")
	flags.set.StringVar(&cfg.StateDir, "state-dir", "/var/lib/ovn-dhcp-ipam/dhcp", "`directory` for the records of leases")
	flags.set.DurationVar(&cfg.Timeout, "timeout", 45*time.Second, "time for one ADD")
	flags.set.BoolVar(&cfg.Probe, "probe", false, probeUsage)
	var err error
	if cfg.Log, err = flags.parse(args); err != nil {
		return err
	}
	if cfg.Timeout <= 0 {
		return fmt.Errorf("flag --timeout: %v is not a time to wait", cfg.Timeout)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(burstPercent)
	}
	server, err := cnirpc.New(cfg)
	if err != nil {
		return err
	}
	listener, err := cnirpc.Listen(cfg.HostPrefix + socket)
	if err != nil {
		return err
	}
	return server.Run(ctx, listener)
}
