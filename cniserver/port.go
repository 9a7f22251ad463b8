// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/ovsdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/ovs"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// Keys of an interface's external_ids by which rows are found.
const (
	idIface   = "iface-id"
	idNAD     = "k8s.ovn.org/nad"
	idSandbox = "sandbox"
	idIfName  = "pod-if-name"
	// idAddresses is kept in step with the lease.
	idAddresses = "ip_addresses"
)

// addPort joins a host interface to the integration bridge. In the same
// transaction the ports of other interfaces of the same attachment go: an
// earlier sandbox of the pod leaves one behind, and two of them would compete
// for the logical port. So would one of another attachment with the same
// iface-id, as NADs a-b and a.b give; then the port is refused.
func (v *vswitch) addPort(ctx context.Context, name string, externalIDs map[string]string, limits podnet.Bandwidth) error {
	s, err := v.session(ctx)
	if err != nil {
		return err
	}
	bridge, err := findBridge(ctx, s, integrationBridge)
	if err != nil {
		return err
	}
	var rival string
	stale, err := portsWhere(ctx, s, func(i *ovs.Interface) bool {
		same := i.ExternalIDs[idIface] == externalIDs[idIface]
		if same && i.ExternalIDs[idNAD] != externalIDs[idNAD] {
			rival = fmt.Sprintf("interface %s of attachment %q", i.Name, i.ExternalIDs[idNAD])
		}
		// A port of this name has no device, since the name was free when it was
		// picked, or is an earlier sandbox's, which had the same device.
		return same || i.Name == name
	})
	if err != nil {
		return err
	}
	if rival != "" {
		return fmt.Errorf("attachment %s would have the logical switch port %s, which %s has", externalIDs[idNAD], externalIDs[idIface], rival)
	}
	create, err := s.Create(portRows(name, externalIDs, limits)...)
	if err != nil {
		return fmt.Errorf("OVS port %s: %w", name, err)
	}
	remove, err := mutatePorts(s, bridge, libovsdb.MutateOperationDelete, stale)
	if err != nil {
		return err
	}
	insert, err := mutatePorts(s, bridge, libovsdb.MutateOperationInsert, []string{newPort})
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, slices.Concat(remove, create, insert)...); err != nil {
		return fmt.Errorf("OVS port %s: %w", name, err)
	}
	return nil
}

// newPort is the name for a new port's UUID within a transaction.
const newPort = "port"

// portRows are the rows of a new port. What the pod receives is limited by a QoS
// of the port, and what it sends by policing of the interface, as
// OVN-Kubernetes does it.
func portRows(name string, externalIDs map[string]string, limits podnet.Bandwidth) []model.Model {
	iface := &ovs.Interface{UUID: "iface", Name: name, ExternalIDs: externalIDs}
	if limits.Egress > 0 {
		// In kbit/s and kbit; ovs-vswitchd.conf.db(5) has a burst of a tenth
		// of the rate as the least that works well with TCP.
		iface.IngressPolicingRate = int(max(limits.Egress/1000, 1))
		iface.IngressPolicingBurst = max(iface.IngressPolicingRate/10, 1)
	}
	port := &ovs.Port{UUID: newPort, Name: name, Interfaces: []string{iface.UUID}, OtherConfig: map[string]string{"transient": "true"}}
	rows := []model.Model{iface, port}
	if limits.Ingress > 0 {
		qos := &ovs.QoS{
			UUID: "qos", Type: "linux-htb",
			OtherConfig: map[string]string{"max-rate": strconv.FormatInt(limits.Ingress, 10)},
			ExternalIDs: map[string]string{idSandbox: externalIDs[idSandbox], idIfName: externalIDs[idIfName]},
		}
		port.QOS = &qos.UUID
		rows = append(rows, qos)
	}
	return rows
}

// deletePorts takes the ports of a sandbox's interface, and no other's, from
// the integration bridge, and returns their names. None is no error.
func (v *vswitch) deletePorts(ctx context.Context, sandbox, ifname string) ([]string, error) {
	s, err := v.session(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	ports, err := portsWhere(ctx, s, func(i *ovs.Interface) bool {
		if i.ExternalIDs[idSandbox] != sandbox || i.ExternalIDs[idIfName] != ifname {
			return false
		}
		names = append(names, i.Name)
		return true
	})
	if err != nil {
		return nil, err
	}
	// A QoS may be left when a newer sandbox has had the port removed.
	ops, err := s.WhereCache(func(q *ovs.QoS) bool {
		return q.ExternalIDs[idSandbox] == sandbox && q.ExternalIDs[idIfName] == ifname
	}).Delete()
	if err != nil {
		return nil, fmt.Errorf("QoS of OVS ports %v: %w", names, err)
	}
	if len(ports) > 0 {
		bridge, err := findBridge(ctx, s, integrationBridge)
		if err != nil {
			return nil, err
		}
		remove, err := mutatePorts(s, bridge, libovsdb.MutateOperationDelete, ports)
		if err != nil {
			return nil, err
		}
		ops = append(ops, remove...)
		// Without this they would go only after the QoS that they refer to.
		for _, uuid := range ports {
			port := &ovs.Port{UUID: uuid}
			remove, err := s.Where(port).Delete()
			if err != nil {
				return nil, fmt.Errorf("OVS ports %v: %w", names, err)
			}
			ops = append(ops, remove...)
		}
	}
	if len(ops) == 0 {
		return nil, nil
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

// setExternalID sets one external id of a host interface, or removes it if value is "".
func (v *vswitch) setExternalID(ctx context.Context, name, key, value string) error {
	s, err := v.session(ctx)
	if err != nil {
		return err
	}
	iface := &ovs.Interface{Name: name}
	mutations := []model.Mutation{{Field: &iface.ExternalIDs, Mutator: libovsdb.MutateOperationDelete, Value: []string{key}}}
	if value != "" {
		mutations = append(mutations, model.Mutation{Field: &iface.ExternalIDs, Mutator: libovsdb.MutateOperationInsert, Value: map[string]string{key: value}})
	}
	var ops []libovsdb.Operation
	for _, m := range mutations {
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
		iface.ExternalIDs[idIface], iface.Name)
}
