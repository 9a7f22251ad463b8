// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// Codes of the DHCP options that dhcp.Config has fields for.
const (
	optionHostName = 12
	optionClientID = 61
)

// clientConfig is the DHCP client of an attachment: by default the client id is
// 0x01 and the MAC address, and the host name that of the pod. The network's
// ipam.provide changes both and adds options; its ipam.request adds to, or
// replaces, what is asked for.
func clientConfig(a *adding) (dhcp.Config, error) {
	cfg := dhcp.Config{HardwareAddr: a.mac, HostName: a.hostName, Options: map[uint8][]byte{}}
	if a.Lease != nil {
		cfg.RequestedAddr = a.Lease.Addr.Addr()
	}
	for i, p := range a.conf.DHCP.Provide {
		code, err := podnet.OptionCode(p.Option)
		if err != nil {
			return cfg, fmt.Errorf("ipam.provide[%d].option: %q: %w", i, p.Option, err)
		}
		value := p.Value
		if p.FromArg != "" {
			var ok bool
			if value, ok = a.args[p.FromArg]; !ok {
				return cfg, fmt.Errorf("ipam.provide[%d].fromArg: %q is not in CNI_ARGS", i, p.FromArg)
			}
		}
		switch code {
		case optionHostName:
			cfg.HostName = value
		case optionClientID:
			cfg.ClientID = []byte(value)
		default:
			cfg.Options[code] = []byte(value)
		}
	}
	var err error
	if cfg.Request, err = requestList(a.conf.DHCP.Request); err != nil {
		return cfg, err
	}
	if err := cfg.Check(); err != nil {
		return cfg, fmt.Errorf("ipam.provide: %w", err)
	}
	return cfg, nil
}

// hostName is a pod's host name as kubelet makes it.
func hostName(pod *corev1.Pod) string {
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	return strings.TrimRight(name[:min(len(name), maxHostName)], "-.")
}

// maxHostName is the longest host name of Linux, less one.
const maxHostName = 63

// requestList is the parameter request list of a network: nil stands for the
// default one.
func requestList(request []podnet.RequestOption) ([]uint8, error) {
	var codes []uint8
	skipDefault := false
	for i, r := range request {
		skipDefault = skipDefault || r.SkipDefault
		if r.Option == "" {
			continue
		}
		code, err := podnet.OptionCode(r.Option)
		if err != nil {
			return nil, fmt.Errorf("ipam.request[%d].option: %q: %w", i, r.Option, err)
		}
		codes = append(codes, code)
	}
	if len(codes) == 0 && !skipDefault {
		return nil, nil
	}
	if skipDefault {
		return codes, nil
	}
	return append(dhcp.DefaultRequest(), codes...), nil
}

// acquire gets a lease on the pod's interface. What is asked for is in the
// record before the server can grant it, and the lease before it is used.
func (s *Server) acquire(ctx context.Context, a *adding) error {
	cfg, err := clientConfig(a)
	if err != nil {
		return err
	}
	link, err := dhcp.OpenLink(a.Netns, a.IfName)
	if err != nil {
		return err
	}
	// Closing takes the kernel longer than an exchange of DHCP messages.
	defer s.closeLink(link)
	cfg.Selected = func(offer dhcp.Lease) error { return s.keep(a, "record offer", offer) }
	lease, err := dhcp.Acquire(ctx, link, cfg)
	if err != nil {
		return fmt.Errorf("DHCP on physical network %q, VLAN %d: %w", a.conf.PhysicalNetworkName, a.conf.VLANID, err)
	}
	return s.keep(a, "record lease", lease)
}

func (s *Server) keep(a *adding, what string, lease dhcp.Lease) error {
	a.Lease = &lease
	return s.act(what, func() error { return s.records.Put(a.key(), a.attachment) })
}

// closeLink closes a link in the background; Run waits for it at the end.
func (s *Server) closeLink(link *dhcp.Link) {
	s.closing.Go(func() {
		if err := link.Close(); err != nil {
			s.log.Warn("close the DHCP client's socket", "err", err)
		}
	})
}

// release gives the lease back, from the leased address. A lease that a newer
// attachment holds by now is not given back, and one whose interface is gone
// can't be: it ends at its time.
func (s *Server) release(ctx context.Context, a attachment) error {
	if a.Lease == nil || s.superseded(a) {
		return nil
	}
	log := s.log.With("pod", a.Namespace+"/"+a.Pod, "ifname", a.IfName, "addr", a.Lease.Addr, "server", a.Lease.Server)
	link, err := dhcp.OpenLink(a.Netns, a.IfName)
	if interfaceGone(err) {
		log.Warn("lease can't be given back, since the interface is gone; it ends at its time", "expires", a.Lease.Expires)
		return nil
	}
	if err != nil {
		return err
	}
	defer s.closeLink(link)
	if err := dhcp.Release(ctx, link, *a.Lease); err != nil {
		log.Warn("lease can't be given back; it ends at its time", "expires", a.Lease.Expires, "err", err)
	}
	return nil
}

func interfaceGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &ns.NSPathNotExistErr{}) || errors.As(err, &ns.NSPathNotNSErr{}) ||
		errors.As(err, &netlink.LinkNotFoundError{})
}

// configure puts the lease to use on the pod's interface.
func (s *Server) configure(ctx context.Context, a *adding) error {
	kept, err := a.netns.otherRoutes(a.IfName)
	if err != nil {
		return err
	}
	a.routes = podRoutes(a.Lease, a.request.DefaultRoute, kept)
	if err := configure(a.netns, a.IfName, a.Lease.Addr, podMTU(a.conf.MTU, a.Lease.MTU), a.routes); err != nil {
		return err
	}
	return s.vswitch.setExternalID(ctx, a.HostIfName, "ip_addresses", a.Lease.Addr.String())
}
