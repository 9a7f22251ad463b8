// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// clientConfig is the DHCP client of an attachment: by default the client id is
// 0x01 and the MAC address, and the host name that of the pod, or of the virtual
// machine in it, whose own client is likely to be the same. The network's
// ipam.provide changes both and adds options, where an argument of the call comes
// before a value; its ipam.request adds to, or replaces, what is asked for.
func clientConfig(a *adding) (dhcp.Config, error) {
	cfg := dhcp.Config{HardwareAddr: a.mac, HostName: a.hostName}
	for i, p := range a.conf.DHCP.Provide {
		code, err := podnet.OptionCode(p.Option)
		if err != nil {
			return cfg, fmt.Errorf("ipam.provide[%d].option: %q: %w", i, p.Option, err)
		}
		value := p.Value
		if arg, ok := a.args[p.FromArg]; ok {
			value = arg
		}
		cfg.Provide(code, value)
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

// hostName is a pod's host name as kubelet makes it, or that of the virtual machine
// in it as KubeVirt makes it: what its name has before a dot. A name of a machine that
// can't be a host's gives none.
func hostName(pod *corev1.Pod, vm string) string {
	name := cmp.Or(pod.Spec.Hostname, pod.Name)
	if vm != "" {
		name, _, _ = strings.Cut(vm, ".")
	}
	name = strings.TrimRight(name[:min(len(name), maxHostName)], "-.")
	if vm != "" && len(validation.IsDNS1123Label(strings.ToLower(name))) > 0 {
		return ""
	}
	return name
}

// maxHostName is the longest host name of Linux, less one.
const maxHostName = 63

// requestList is the parameter request list of a network, maybe an empty one.
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
	return dhcp.RequestList(skipDefault, codes...), nil
}

// acquire gets a lease for the pod's interface, which the keeper then keeps, or
// finds out what is a guest's.
func (s *Server) acquire(ctx context.Context, a *adding) error {
	switch {
	case a.course.tenure == discovered:
		return s.discover(ctx, a)
	case a.course.tenure == inherited:
		if err := inherit(a); err != nil || a.course.plumbing != vfioVF {
			return err
		}
		return s.devices.Assign(ctx, a.Device.PCI, a.mac)
	case s.cfg.ExternalDHCP != "":
		return s.acquireExternal(ctx, a)
	}
	cfg, err := clientConfig(a)
	if err != nil {
		return err
	}
	cfg.Probe = s.cfg.Probe
	cfg.Selected = func(dhcp.Lease) error { return fault("offer selected") }
	a.lease, err = s.keeper.Acquire(ctx, a.key(), dhcp.Client{Netns: a.Netns, IfName: a.IfName, Config: cfg})
	if err != nil {
		return fmt.Errorf("DHCP on physical network %q, VLAN %d: %w", a.PhysicalNetwork, a.VLAN, err)
	}
	return nil
}

// release gives the lease back. One that a newer attachment has taken over, or a
// guest has been left, is forgotten. The error is dhcp.ErrPending when it can't be
// given back now: the keeper goes on trying.
func (s *Server) release(ctx context.Context, a attachment) error {
	if a.External != nil {
		s.releaseExternal(ctx, a)
		return nil
	}
	unused := a.Watched != nil && a.Watched.Unused != nil
	if s.superseded(a) || a.VM != "" && a.Reported && !unused {
		return s.keeper.Forget(ctx, a.key())
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	err := s.keeper.Release(ctx, a.key())
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, dhcp.ErrPending) {
		err = fmt.Errorf("%w: %w", dhcp.ErrPending, err)
	}
	return err
}

// releaseTimeout bounds the try to give a lease back, so that what else is to be
// undone has its time.
const releaseTimeout = 5 * time.Second

// lease is the lease that an attachment has at this moment.
func (s *Server) lease(a attachment) (dhcp.Lease, bool) {
	if a.External != nil {
		return a.External.Lease, a.External.Lease.Addr.IsValid()
	}
	if a.Discovered != nil {
		if w := a.Watched; w != nil && w.State.Lease.Addr.IsValid() && w.State.Lease.Addr != a.Discovered.Addr {
			return w.State.Lease, true
		}
		return *a.Discovered, true
	}
	return s.keeper.Lease(a.key())
}

// configure puts the lease to use on the pod's interface, if it is the pod's.
func (s *Server) configure(ctx context.Context, a *adding) (err error) {
	if a.VM != "" {
		return s.vswitch.setExternalID(ctx, a.HostIfName, idAddresses, a.lease.Addr.String())
	}
	if a.routes, err = a.netns.routesFor(a.attachment, a.lease); err != nil {
		return err
	}
	if err := a.netns.configure(a.attachment, a.lease, a.routes); err != nil {
		return err
	}
	return s.vswitch.setExternalID(ctx, a.HostIfName, idAddresses, a.lease.Addr.String())
}
