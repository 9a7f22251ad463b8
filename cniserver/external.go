// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// external is a lease that the CNI dhcp plugin's daemon keeps, as OKEP-6224 has
// it. That daemon renews and releases it; a change that it makes doesn't come
// here.
type external struct {
	// Plugin is its path. Config and Args are what it was called with, for its DEL.
	Plugin string          `json:"plugin"`
	Config json.RawMessage `json:"config"`
	Args   string          `json:"args,omitempty"`
	Lease  dhcp.Lease      `json:"lease,omitzero"`
}

// acquireExternal has the plugin get the lease. That it is called is in the
// record first.
func (s *Server) acquireExternal(ctx context.Context, a *adding) error {
	plugin := s.cfg.ExternalDHCP
	a.External = &external{Plugin: plugin, Config: a.config, Args: a.cniArgs}
	if err := s.records.Put(a.key(), a.attachment); err != nil {
		return err
	}
	r, err := invoke.ExecPluginWithResult(ctx, plugin, a.config, externalArgs("ADD", a.attachment), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	result, err := types100.GetResult(r)
	if err != nil {
		return fmt.Errorf("result of %s: %w", plugin, err)
	}
	if a.lease, err = leaseFrom(result); err != nil {
		return fmt.Errorf("result of %s: %w", plugin, err)
	}
	a.lease.HardwareAddr = a.mac
	a.External.Lease = a.lease
	return s.records.Put(a.key(), a.attachment)
}

// releaseExternal has the plugin give the lease back. A daemon that is down has
// forgotten its leases, so there is nothing to wait for.
func (s *Server) releaseExternal(ctx context.Context, a attachment) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := invoke.ExecPluginWithoutResult(ctx, a.External.Plugin, a.External.Config, externalArgs("DEL", a), nil)
	if err != nil {
		s.log.Warn("lease can't be given back; it ends at its time", "pod", a.Namespace+"/"+a.Pod, "ifname", a.IfName, "plugin", a.External.Plugin, "err", err)
	}
}

func externalArgs(command string, a attachment) *invoke.Args {
	return &invoke.Args{
		Command: command, ContainerID: a.ContainerID, NetNS: a.Netns, IfName: a.IfName, PluginArgsStr: a.External.Args,
		Path: filepath.Dir(a.External.Plugin),
	}
}

// leaseFrom is what a plugin's result says of the lease.
func leaseFrom(result *types100.Result) (dhcp.Lease, error) {
	if len(result.IPs) == 0 {
		return dhcp.Lease{}, errors.New("no address")
	}
	addr, ok := prefixFrom(result.IPs[0].Address)
	if !ok || !addr.Addr().Is4() {
		return dhcp.Lease{}, fmt.Errorf("%v is not an IPv4 address", result.IPs[0].Address)
	}
	lease := dhcp.Lease{Addr: addr, Gateway: addrFrom(result.IPs[0].Gateway), Domain: result.DNS.Domain, Search: result.DNS.Search}
	for _, r := range result.Routes {
		dst, ok := prefixFrom(r.Dst)
		if !ok || !dst.Addr().Is4() {
			continue
		}
		if dst.Bits() == 0 {
			lease.Gateway = addrFrom(r.GW)
			continue
		}
		lease.Routes = append(lease.Routes, dhcp.Route{Dst: dst, Gateway: addrFrom(r.GW)})
	}
	for _, server := range result.DNS.Nameservers {
		if a, err := netip.ParseAddr(server); err == nil {
			lease.DNS = append(lease.DNS, a)
		}
	}
	return lease, nil
}

func prefixFrom(n net.IPNet) (netip.Prefix, bool) {
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok && size > 0
}

// addrFrom is the zero Addr for an IP that is not set.
func addrFrom(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}
