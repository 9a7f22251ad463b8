// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// check says whether an attachment is as its ADD left it: the record, the pod's
// interface with its address, which a guest's hasn't, or the guest's device, and the
// OVS port.
func (s *Server) check(ctx context.Context, c call) error {
	a, ok := s.records.Get(attachmentKey(c.containerID, c.ifname))
	if !ok || a.State != stateLive {
		return fail(types.ErrUnknownContainer, fmt.Errorf("container %q has no interface %q of this plugin", c.containerID, c.ifname))
	}
	if !inPlace(a) {
		return fmt.Errorf("interface %s with MAC address %s is not in %s any more", a.IfName, a.MAC, a.Netns)
	}
	lease, ok := s.lease(a)
	if !ok {
		return fmt.Errorf("interface %s has no lease at this moment", a.IfName)
	}
	if a.VM == "" {
		if err := hasAddress(a, lease.Addr); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if a.Device != nil && a.Device.Passed {
		if err := s.isPassed(ctx, a.Device.PCI); err != nil {
			return err
		}
	}
	return s.vswitch.awaitInstalled(ctx, a.HostIfName)
}

// isPassed fails if a device is not for guests any more, or not for good.
func (s *Server) isPassed(ctx context.Context, pci string) error {
	d, err := s.devices.Device(ctx, pci)
	if err == nil && (d.Driver != vfio.DriverVFIO || d.Override != vfio.DriverVFIO) {
		err = fmt.Errorf("PCI device %q has driver %q, and is pinned to %q: both should be %s", pci, d.Driver, d.Override, vfio.DriverVFIO)
	}
	return err
}

func hasAddress(a attachment, addr netip.Prefix) error {
	netns, err := openNetns(a.Netns)
	if err != nil {
		return err
	}
	defer netns.Close()
	link, err := netns.LinkByName(a.IfName)
	if err != nil {
		return fmt.Errorf("interface %s: %w", a.IfName, err)
	}
	addrs, err := netns.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("addresses of interface %s: %w", a.IfName, err)
	}
	if !slices.ContainsFunc(addrs, func(has netlink.Addr) bool { return has.IPNet.String() == addr.String() }) {
		return fmt.Errorf("interface %s does not have address %s", a.IfName, addr)
	}
	return nil
}

// collect undoes the network's attachments that the runtime does not name as
// valid (CNI specification 1.1.0, GC).
func (s *Server) collect(ctx context.Context, c call) error {
	var conf types.NetConf
	if err := json.Unmarshal(c.config, &conf); err != nil {
		return fail(types.ErrDecodingFailure, fmt.Errorf("network configuration: %w", err))
	}
	valid := map[string]bool{}
	for _, v := range conf.ValidAttachments {
		valid[attachmentKey(v.ContainerID, v.IfName)] = true
	}
	var errs error
	for key, a := range s.records.All() {
		if a.Network != conf.Name || valid[key] || a.State == stateAdding {
			continue
		}
		s.log.Info("attachment is not valid any more", "pod", a.Namespace+"/"+a.Pod, "sandbox", a.ContainerID, "ifname", a.IfName)
		errs = errors.Join(errs, s.del(ctx, call{containerID: a.ContainerID, ifname: a.IfName}))
	}
	return errs
}
