// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// engine is the product's DHCP engine in this process. It asks as the daemon does, and
// the bare socket, for answers to itself alone; the node daemon would ask for broadcasts.
type engine struct {
	keeper *dhcp.Keeper
	end    context.CancelFunc
	ended  chan error
}

func (b *bench) newEngine(ctx context.Context) (client, error) {
	dir, err := os.MkdirTemp(b.dir, "engine-")
	if err != nil {
		return nil, err
	}
	keeper, err := dhcp.NewKeeper(dhcp.KeeperConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	e := &engine{keeper: keeper, end: end, ended: make(chan error, 1)}
	go func() { e.ended <- keeper.Run(ctx) }()
	return e, nil
}

func (e *engine) acquire(ctx context.Context, p *pod) error {
	_, err := e.keeper.Acquire(ctx, p.name, dhcp.Client{Netns: p.netns, IfName: podDevice, Config: dhcp.Config{
		HardwareAddr: p.hw, ClientID: []byte("\x00" + p.name), Unicast: true,
	}})
	return err
}

// close leaves the leases, and the files, as daemon.close does.
func (e *engine) close() error {
	e.end()
	if err := <-e.ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
