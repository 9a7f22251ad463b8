// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

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
	})
	if err != nil {
		return nil, fmt.Errorf("model of the Open_vSwitch database: %w", err)
	}
	root, bridge, port, iface := &ovs.OpenvSwitch{}, &ovs.Bridge{}, &ovs.Port{}, &ovs.Interface{}
	return &vswitch{
		cfg: ovsdb.Config{
			Endpoint: endpoint,
			Model:    db,
			Tables: []client.MonitorOption{
				client.WithTable(root, &root.ExternalIDs),
				client.WithTable(bridge, &bridge.Name, &bridge.DatapathType),
				client.WithTable(port, &port.Name, &port.Interfaces),
				client.WithTable(iface, &iface.Name, &iface.ExternalIDs, &iface.Error, &iface.Ofport),
			},
			Log: log,
		},
		ready: make(chan struct{}),
	}, nil
}

// run keeps a session until ctx ends.
func (v *vswitch) run(ctx context.Context) error {
	return ovsdb.Run(ctx, v.cfg, func(ctx context.Context, s *ovsdb.Session) error {
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

// checkMapping checks that ovn-controller has a bridge for a physical network.
func (v *vswitch) checkMapping(ctx context.Context, physicalNetwork string) error {
	s, err := v.session(ctx)
	if err != nil {
		return err
	}
	var roots []ovs.OpenvSwitch
	if err := s.List(ctx, &roots); err != nil {
		return fmt.Errorf("read the Open_vSwitch table: %w", err)
	}
	var mappings string
	if len(roots) > 0 {
		mappings = roots[0].ExternalIDs["ovn-bridge-mappings"]
	}
	bridge, ok := mappedBridge(mappings, physicalNetwork)
	if !ok {
		return fmt.Errorf("physicalNetworkName: Invalid value: %q: no bridge is mapped to it in external_ids:ovn-bridge-mappings=%q of this node's Open_vSwitch table", physicalNetwork, mappings)
	}
	if _, err := findBridge(ctx, s, bridge); err != nil {
		return fmt.Errorf("physicalNetworkName: Invalid value: %q: external_ids:ovn-bridge-mappings=%q: %w", physicalNetwork, mappings, err)
	}
	return nil
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

// addPort joins a host interface to the integration bridge. In the same
// transaction the ports of other interfaces with the same iface-id go: two of
// them, as an earlier sandbox of the pod leaves one behind, would compete for
// the logical port.
func (v *vswitch) addPort(ctx context.Context, name string, externalIDs map[string]string) error {
	s, err := v.session(ctx)
	if err != nil {
		return err
	}
	bridge, err := findBridge(ctx, s, integrationBridge)
	if err != nil {
		return err
	}
	stale, err := portsWhere(ctx, s, func(i *ovs.Interface) bool {
		return i.Name == name || i.ExternalIDs["iface-id"] == externalIDs["iface-id"]
	})
	if err != nil {
		return err
	}
	iface := &ovs.Interface{UUID: "iface", Name: name, ExternalIDs: externalIDs}
	port := &ovs.Port{UUID: "port", Name: name, Interfaces: []string{iface.UUID}, OtherConfig: map[string]string{"transient": "true"}}
	create, err := s.Create(iface, port)
	if err != nil {
		return fmt.Errorf("OVS port %s: %w", name, err)
	}
	remove, err := mutatePorts(s, bridge, libovsdb.MutateOperationDelete, stale)
	if err != nil {
		return err
	}
	insert, err := mutatePorts(s, bridge, libovsdb.MutateOperationInsert, []string{port.UUID})
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, slices.Concat(remove, create, insert)...); err != nil {
		return fmt.Errorf("OVS port %s: %w", name, err)
	}
	return nil
}

// deletePorts takes the ports of a sandbox's interface, and no other's, from
// the integration bridge and returns their names. None is no error.
func (v *vswitch) deletePorts(ctx context.Context, sandbox, ifname string) ([]string, error) {
	s, err := v.session(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	ports, err := portsWhere(ctx, s, func(i *ovs.Interface) bool {
		if i.ExternalIDs["sandbox"] != sandbox || i.ExternalIDs["pod-if-name"] != ifname {
			return false
		}
		names = append(names, i.Name)
		return true
	})
	if err != nil || len(ports) == 0 {
		return nil, err
	}
	bridge, err := findBridge(ctx, s, integrationBridge)
	if err != nil {
		return nil, err
	}
	ops, err := mutatePorts(s, bridge, libovsdb.MutateOperationDelete, ports)
	if err != nil {
		return nil, err
	}
	if err := s.Commit(ctx, ops...); err != nil {
		return nil, fmt.Errorf("OVS ports %v: %w", names, err)
	}
	return names, nil
}

// portsWhere returns the UUIDs of the ports whose interface matches.
func portsWhere(ctx context.Context, s *ovsdb.Session, match func(*ovs.Interface) bool) ([]string, error) {
	var ifaces []ovs.Interface
	if err := s.WhereCache(match).List(ctx, &ifaces); err != nil {
		return nil, fmt.Errorf("read the Interface table: %w", err)
	}
	if len(ifaces) == 0 {
		return nil, nil
	}
	matched := map[string]bool{}
	for _, i := range ifaces {
		matched[i.UUID] = true
	}
	var ports []ovs.Port
	err := s.WhereCache(func(p *ovs.Port) bool {
		return slices.ContainsFunc(p.Interfaces, func(uuid string) bool { return matched[uuid] })
	}).List(ctx, &ports)
	if err != nil {
		return nil, fmt.Errorf("read the Port table: %w", err)
	}
	var uuids []string
	for _, p := range ports {
		uuids = append(uuids, p.UUID)
	}
	return uuids, nil
}

func mutatePorts(s *ovsdb.Session, bridge *ovs.Bridge, how libovsdb.Mutator, ports []string) ([]libovsdb.Operation, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	ops, err := s.Where(bridge).Mutate(bridge, model.Mutation{Field: &bridge.Ports, Mutator: how, Value: ports})
	if err != nil {
		return nil, fmt.Errorf("ports of bridge %s: %w", bridge.Name, err)
	}
	return ops, nil
}

// setExternalID sets one external id of a host interface.
func (v *vswitch) setExternalID(ctx context.Context, name, key, value string) error {
	s, err := v.session(ctx)
	if err != nil {
		return err
	}
	iface := &ovs.Interface{Name: name}
	var ops []libovsdb.Operation
	for _, m := range []model.Mutation{
		{Field: &iface.ExternalIDs, Mutator: libovsdb.MutateOperationDelete, Value: []string{key}},
		{Field: &iface.ExternalIDs, Mutator: libovsdb.MutateOperationInsert, Value: map[string]string{key: value}},
	} {
		op, err := s.Where(iface).Mutate(iface, m)
		if err != nil {
			return fmt.Errorf("external ids of OVS interface %s: %w", name, err)
		}
		ops = append(ops, op...)
	}
	if err := s.Commit(ctx, ops...); err != nil {
		return fmt.Errorf("external ids of OVS interface %s: %w", name, err)
	}
	return nil
}

// awaitInstalled waits until OVN has installed a host interface's logical port.
// When ctx ends first, the error says how far it got.
func (v *vswitch) awaitInstalled(ctx context.Context, name string) error {
	iface := ovs.Interface{Name: name}
	installed := func(s *ovsdb.Session) func() (bool, error) {
		return func() (bool, error) {
			iface = ovs.Interface{Name: name}
			switch err := s.Get(ctx, &iface); {
			case errors.Is(err, client.ErrNotFound):
				return false, fmt.Errorf("OVS interface %s is gone", name)
			case err != nil:
				return false, fmt.Errorf("read the Interface table: %w", err)
			case iface.Error != nil && *iface.Error != "":
				return false, fmt.Errorf("OVS interface %s: %s", name, *iface.Error)
			}
			return iface.ExternalIDs["ovn-installed"] == "true", nil
		}
	}
	for {
		s, err := v.session(ctx)
		if err != nil {
			return err
		}
		err = s.Await(ctx, installed(s))
		switch {
		case errors.Is(err, ovsdb.ErrEnded):
			continue
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%s: %w", notInstalled(&iface), err)
		}
		return err
	}
}

// notInstalled says who failed to install an interface.
func notInstalled(iface *ovs.Interface) string {
	if iface.Ofport == nil {
		return fmt.Sprintf("ovs-vswitchd has not opened interface %s (is it running?)", iface.Name)
	}
	return fmt.Sprintf("OVN has not installed logical switch port %q of interface %s: either the controller has not made the port (is ovn-dhcp-ipam controller running, and in step with the API?) or ovn-controller has not bound it",
		iface.ExternalIDs["iface-id"], iface.Name)
}
