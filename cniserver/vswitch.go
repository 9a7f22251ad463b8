// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/ovsdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/ovs"
)

// integrationBridge is the bridge that ovn-controller manages.
const integrationBridge = "br-int"

// vswitch is the node's Open vSwitch, by way of its database. It is safe for
// concurrent use.
type vswitch struct {
	cfg ovsdb.Config

	mu      sync.Mutex
	current *ovsdb.Session
	ready   chan struct{} // closed while there is a session
}

func newVswitch(endpoint string, log *slog.Logger) (*vswitch, error) {
	if _, err := ovsdb.ParseEndpoints(endpoint); err != nil {
		return nil, err
	}
	// The columns not monitored are empty in what the cache returns.
	db, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		ovs.OpenvSwitchTable: &ovs.OpenvSwitch{},
		ovs.BridgeTable:      &ovs.Bridge{},
		ovs.PortTable:        &ovs.Port{},
		ovs.InterfaceTable:   &ovs.Interface{},
		ovs.QoSTable:         &ovs.QoS{},
	})
	if err != nil {
		return nil, fmt.Errorf("model of the Open_vSwitch database: %w", err)
	}
	root, bridge, port, iface, qos := &ovs.OpenvSwitch{}, &ovs.Bridge{}, &ovs.Port{}, &ovs.Interface{}, &ovs.QoS{}
	return &vswitch{
		cfg: ovsdb.Config{
			Endpoint: endpoint,
			Model:    db,
			Tables: []client.MonitorOption{
				client.WithTable(root, &root.ExternalIDs),
				client.WithTable(bridge, &bridge.Name, &bridge.DatapathType),
				client.WithTable(port, &port.Name, &port.Interfaces),
				client.WithTable(iface, &iface.Name, &iface.ExternalIDs, &iface.Error, &iface.Ofport),
				client.WithTable(qos, &qos.ExternalIDs),
			},
			Log: log,
		},
		ready: make(chan struct{}),
	}, nil
}

// run keeps a session until ctx ends.
func (v *vswitch) run(ctx context.Context) error {
	return ovsdb.Run(ctx, v.cfg, func(ctx context.Context, s *ovsdb.Session) error {
		if err := removeReleasePorts(ctx, s); err != nil {
			return err
		}
		v.set(s)
		defer v.unset()
		<-ctx.Done()
		return ctx.Err()
	})
}

func (v *vswitch) set(s *ovsdb.Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current = s
	close(v.ready)
}

func (v *vswitch) unset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current = nil
	v.ready = make(chan struct{})
}

// session waits for a session.
func (v *vswitch) session(ctx context.Context) (*ovsdb.Session, error) {
	for {
		v.mu.Lock()
		current, ready := v.current, v.ready
		v.mu.Unlock()
		if current != nil {
			return current, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no session with the Open vSwitch database %s: %w", v.cfg.Endpoint, ctx.Err())
		case <-ready:
		}
	}
}

// physicalBridge is the bridge that ovn-controller has for a physical network.
func (v *vswitch) physicalBridge(ctx context.Context, physicalNetwork string) (string, error) {
	s, err := v.session(ctx)
	if err != nil {
		return "", err
	}
	var roots []ovs.OpenvSwitch
	if err := s.List(ctx, &roots); err != nil {
		return "", fmt.Errorf("read the Open_vSwitch table: %w", err)
	}
	var mappings string
	if len(roots) > 0 {
		mappings = roots[0].ExternalIDs["ovn-bridge-mappings"]
	}
	bridge, ok := mappedBridge(mappings, physicalNetwork)
	if !ok {
		return "", fmt.Errorf("physicalNetworkName: Invalid value: %q: no bridge is mapped to it in external_ids:ovn-bridge-mappings=%q of this node's Open_vSwitch table", physicalNetwork, mappings)
	}
	if _, err := findBridge(ctx, s, bridge); err != nil {
		return "", fmt.Errorf("physicalNetworkName: Invalid value: %q: external_ids:ovn-bridge-mappings=%q: %w", physicalNetwork, mappings, err)
	}
	return bridge, nil
}

// mappedBridge finds a physical network in ovn-bridge-mappings, a comma list of
// network:bridge.
func mappedBridge(mappings, physicalNetwork string) (bridge string, ok bool) {
	for pair := range strings.SplitSeq(mappings, ",") {
		network, bridge, found := strings.Cut(strings.TrimSpace(pair), ":")
		if found && network == physicalNetwork {
			return bridge, true
		}
	}
	return "", false
}

func findBridge(ctx context.Context, s *ovsdb.Session, name string) (*ovs.Bridge, error) {
	var bridges []ovs.Bridge
	if err := s.WhereCache(func(b *ovs.Bridge) bool { return b.Name == name }).List(ctx, &bridges); err != nil {
		return nil, fmt.Errorf("read the Bridge table: %w", err)
	}
	if len(bridges) == 0 {
		return nil, fmt.Errorf("bridge %q does not exist", name)
	}
	return &bridges[0], nil
}

// userspace reports whether the integration bridge forwards in user space.
func (v *vswitch) userspace(ctx context.Context) (bool, error) {
	s, err := v.session(ctx)
	if err != nil {
		return false, err
	}
	bridge, err := findBridge(ctx, s, integrationBridge)
	if err != nil {
		return false, err
	}
	return bridge.DatapathType == "netdev", nil
}
