// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// guest is what is known of the virtual machine in a pod from its other pods.
type guest struct {
	workload
	// mac is the one that the machine has on the network, nil if none is known.
	mac net.HardwareAddr
	// entry is that of the pod that the machine migrates from, and source its name.
	entry  podnet.Entry
	source string
}

// guestOf finds out about the virtual machine in a pod; the zero guest if there is
// none.
func (s *Server) guestOf(ctx context.Context, pod *corev1.Pod, nadKey string) (guest, error) {
	g := guest{workload: workload{vm: podnet.VMName(pod)}}
	if g.vm == "" {
		return g, nil
	}
	pods, err := s.cfg.Pods.ListPods(ctx, pod.Namespace, podnet.VMLabels(pod))
	if err != nil {
		return g, fmt.Errorf("other pods of virtual machine %s/%s: %w", pod.Namespace, g.vm, err)
	}
	source := podnet.MigrationSource(pod, pods)
	// The youngest of the other pods knows best, but for the one that the machine
	// is running in.
	others := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !podnet.SameVM(p, pod) })
	slices.SortFunc(others, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	if source != nil {
		others = append([]*corev1.Pod{source}, others...)
	}
	for _, p := range others {
		networks, err := podnet.ParseNetworks(p.Annotations[podnet.Annotation])
		if err != nil {
			continue // reported on that pod
		}
		e, ok, err := networks.Entry(nadKey)
		if !ok || err != nil {
			continue
		}
		g.mac = e.MAC
		if p == source {
			g.migrates, g.entry, g.source = true, e, p.Name
		}
		return g, nil
	}
	return g, nil
}

// macOf is the MAC address of an attachment: the one that is asked for, else the
// one that the virtual machine has, else one that derives from who it is for.
func (s *Server) macOf(pod *corev1.Pod, request podnet.Request, g guest) net.HardwareAddr {
	switch {
	case request.MAC != nil:
		return request.MAC
	case g.mac != nil:
		return g.mac
	case g.vm != "":
		return podnet.DeriveVMMAC(s.cfg.ClusterID, pod.Namespace, g.vm, request.NADKey)
	}
	return podnet.DeriveMAC(s.cfg.ClusterID, pod.Namespace, pod.Name, request.NADKey)
}

// discover asks the DHCP server in the guest's name. What is found is the guest's,
// whose own client will be given the same lease.
func (s *Server) discover(ctx context.Context, a *adding) error {
	cfg, err := clientConfig(a)
	if err != nil {
		return err
	}
	cfg.Selected = func(dhcp.Lease) error { return fault("offer selected") }
	ask := func(ctx context.Context, netns, ifname string) (err error) {
		a.lease, err = s.keeper.Discover(ctx, a.key(), dhcp.Client{Netns: netns, IfName: ifname, Config: cfg})
		return err
	}
	if a.course.plumbing == vfioVF {
		err = s.devices.Borrow(ctx, a.Device.PCI, a.mac, func(ctx context.Context, netdev string) error { return ask(ctx, "", netdev) })
	} else {
		err = ask(ctx, a.Netns, a.IfName)
	}
	if err != nil {
		return fmt.Errorf("DHCP for virtual machine %s on physical network %q, VLAN %d: %w", a.VM, a.PhysicalNetwork, a.VLAN, err)
	}
	a.Discovered = &a.lease
	return nil
}

// inherit takes the address over from the pod that the guest still runs in.
func inherit(a *adding) error {
	e := a.guest.entry
	if len(e.Addrs) == 0 {
		return fail(types.ErrTryAgainLater, fmt.Errorf("virtual machine %s migrates from pod %s, which has no address on network %s yet", a.VM, a.guest.source, a.Network))
	}
	a.lease = dhcp.Lease{Addr: e.Addrs[0], HardwareAddr: a.mac}
	a.Discovered = &a.lease
	if len(e.Gateways) > 0 {
		a.lease.Gateway = e.Gateways[0]
	}
	if e.DHCP == nil {
		return nil
	}
	if e.DHCP.Server != nil {
		a.lease.Server = *e.DHCP.Server
	}
	if e.DHCP.Expires != nil {
		a.lease.Expires = *e.DHCP.Expires
	}
	return nil
}

// guestEntry is what the pod's annotation says of a guest's address. The guest
// may yet be given another one: its port stays open.
func guestEntry(mac net.HardwareAddr, lease dhcp.Lease) podnet.Entry {
	e := leaseEntry(mac, lease, nil)
	e.DHCP.State = podnet.StateOpen
	return e
}
