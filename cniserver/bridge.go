// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/ovn-org/libovsdb/client"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"
	"github.com/vishvananda/netlink"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/ovsdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/ovs"
)

// releaseByBridge gives a lease back whose interface is gone, or is a guest's who has
// another one: by an internal port that is made for it on the bridge of the physical
// network, with the network's VLAN tag and a MAC address of its own, and removed
// afterwards.
func (s *Server) releaseByBridge(ctx context.Context, key string, lease dhcp.Lease) (err error) {
	a, ok := s.records.Get(key)
	if !ok {
		return fmt.Errorf("%w: nothing is known of the network of %s any more", dhcp.ErrNoOtherWay, key)
	}
	session, err := s.vswitch.session(ctx)
	if err != nil {
		return err
	}
	name, err := s.vswitch.physicalBridge(ctx, a.PhysicalNetwork)
	if err != nil {
		return err
	}
	bridge, err := findBridge(ctx, session, name)
	if err != nil {
		return err
	}
	port, own := releasePortName(key), hostMAC(a.ContainerID, a.IfName)
	if err := addInternalPort(ctx, session, bridge, port, a.VLAN, own.String()); err != nil {
		return err
	}
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		err = errors.Join(err, removeInternalPort(undo, session, port))
	}()
	ready, cancel := context.WithTimeout(ctx, portTimeout)
	defer cancel()
	if err := session.Await(ready, func() (bool, error) {
		i := &ovs.Interface{Name: port}
		if err := session.Get(ctx, i); err != nil && !errors.Is(err, client.ErrNotFound) {
			return false, err
		}
		return i.Ofport != nil && *i.Ofport > 0, nil
	}); err != nil {
		return fmt.Errorf("internal port %s on bridge %s: %w", port, name, err)
	}
	link, err := netlink.LinkByName(port)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("internal port %s on bridge %s: %w", port, name, err)
	}
	speaker, err := dhcp.OpenLink("", port)
	if err != nil {
		return err
	}
	defer speaker.Close()
	return dhcp.ReleaseFor(ctx, speaker, lease, own)
}

// portTimeout is what ovs-vswitchd has to make an internal port.
const portTimeout = 2 * time.Second

// purposeRelease marks the interfaces of internal ports for a RELEASE.
const (
	idPurpose      = "ovn-dhcp-ipam/purpose"
	purposeRelease = "release"
)

// removeReleasePorts removes the internal ports that a daemon that was cut off
// has left behind: they would speak with MAC addresses that are others' by now.
func removeReleasePorts(ctx context.Context, s *ovsdb.Session) error {
	return removePorts(ctx, s, func(i *ovs.Interface) bool { return i.ExternalIDs[idPurpose] == purposeRelease })
}

// removePorts takes the ports of the interfaces that match off all bridges.
func removePorts(ctx context.Context, s *ovsdb.Session, match func(*ovs.Interface) bool) error {
	ports, err := portsWhere(ctx, s, match)
	if err != nil || len(ports) == 0 {
		return err
	}
	var bridges []ovs.Bridge
	if err := s.List(ctx, &bridges); err != nil {
		return fmt.Errorf("read the Bridge table: %w", err)
	}
	var ops []libovsdb.Operation
	for i := range bridges {
		leave, err := mutatePorts(s, &bridges[i], libovsdb.MutateOperationDelete, ports)
		if err != nil {
			return err
		}
		ops = append(ops, leave...)
	}
	if err := s.Commit(ctx, ops...); err != nil {
		return fmt.Errorf("remove OVS ports: %w", err)
	}
	return nil
}

// releasePortName is the name of an attachment's internal port, at most 15
// characters.
func releasePortName(key string) string {
	h := fnv.New32a()
	h.Write([]byte(key))
	return fmt.Sprintf("release%08x", h.Sum32())
}

func addInternalPort(ctx context.Context, s *ovsdb.Session, bridge *ovs.Bridge, name string, vlan int, mac string) error {
	if err := removeInternalPort(ctx, s, name); err != nil {
		return err
	}
	iface := &ovs.Interface{UUID: "iface", Name: name, Type: "internal", MAC: &mac, ExternalIDs: map[string]string{idPurpose: purposeRelease}}
	port := &ovs.Port{UUID: newPort, Name: name, Interfaces: []string{iface.UUID}, OtherConfig: map[string]string{"transient": "true"}}
	if vlan != 0 {
		port.Tag = &vlan
	}
	ops, err := s.Create(iface, port)
	if err != nil {
		return fmt.Errorf("internal port %s: %w", name, err)
	}
	join, err := mutatePorts(s, bridge, libovsdb.MutateOperationInsert, []string{newPort})
	if err != nil {
		return err
	}
	if err := s.Commit(ctx, append(ops, join...)...); err != nil {
		return fmt.Errorf("internal port %s: %w", name, err)
	}
	return nil
}

func removeInternalPort(ctx context.Context, s *ovsdb.Session, name string) error {
	return removePorts(ctx, s, func(i *ovs.Interface) bool { return i.Name == name })
}
