// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// Reasons of the Events on pods.
const (
	reasonAddressChanged = "DHCPAddressChanged"
	reasonLeaseLost      = "DHCPLeaseLost"
)

// leaseChanged puts a lease that the server has changed to use: the new address
// before the old one goes. A lease that only lasts longer changes nothing.
func (s *Server) leaseChanged(ctx context.Context, key string, old, now dhcp.Lease) error {
	a, ok := s.records.Get(key)
	if !ok || a.State != stateLive || sameUse(old, now) {
		return nil
	}
	mac, err := podnet.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	if err := reconfigure(a, old, now); err != nil {
		return err
	}
	if err := s.vswitch.setExternalID(ctx, a.HostIfName, idAddresses, now.Addr.String()); err != nil {
		return err
	}
	if err := s.tell(ctx, a, leaseEntry(mac, now)); err != nil || old.Addr == now.Addr {
		return err
	}
	return s.event(ctx, a, corev1.EventTypeNormal, reasonAddressChanged, fmt.Sprintf("address on network %s is now %s, by DHCP server %s", a.Network, now.Addr, now.Server))
}

// leaseLost takes the address of a lease that has ended off the pod. The link
// stays up, and the keeper goes on trying to get another lease.
func (s *Server) leaseLost(ctx context.Context, key string, lease dhcp.Lease) error {
	a, ok := s.records.Get(key)
	if !ok || a.State != stateLive {
		return nil
	}
	mac, err := podnet.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	if err := removeAddress(a, lease); err != nil {
		return err
	}
	if err := s.vswitch.setExternalID(ctx, a.HostIfName, idAddresses, ""); err != nil {
		return err
	}
	if err := s.tell(ctx, a, lostEntry(mac)); err != nil {
		return err
	}
	return s.event(ctx, a, corev1.EventTypeWarning, reasonLeaseLost, fmt.Sprintf("lease of address %s on network %s has ended, and DHCP server %s has not prolonged it", lease.Addr, a.Network, lease.Server))
}

// sameUse reports whether two leases are put to use in the same way.
func sameUse(a, b dhcp.Lease) bool {
	return a.Addr == b.Addr && a.Gateway == b.Gateway && a.MTU == b.MTU && slices.Equal(a.Routes, b.Routes)
}

// tell writes the pod's annotation; a pod that is gone needs none.
func (s *Server) tell(ctx context.Context, a attachment, e podnet.Entry) error {
	if err := s.annotate(ctx, a, e); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (s *Server) event(ctx context.Context, a attachment, eventType, reason, message string) error {
	s.log.Info("event on a pod", "pod", a.Namespace+"/"+a.Pod, "ifname", a.IfName, "reason", reason, "message", message)
	return s.cfg.Pods.Event(ctx, a.Namespace, a.Pod, a.UID, eventType, reason, message)
}

// reconfigure replaces one lease by another on the pod's interface.
func reconfigure(a attachment, old, now dhcp.Lease) error {
	netns, err := openNetns(a.Netns)
	if err != nil {
		return err
	}
	defer netns.Close()
	before, err := netns.routesFor(a, old)
	if err != nil {
		return err
	}
	after, err := netns.routesFor(a, now)
	if err != nil {
		return err
	}
	stale := slices.DeleteFunc(before, func(r route) bool { return slices.Contains(after, r) })
	if err := netns.removeRoutes(a.IfName, stale); err != nil {
		return err
	}
	if err := configure(netns, a.IfName, now.Addr, podMTU(a.MTU, now.MTU), after); err != nil {
		return err
	}
	if !old.Addr.IsValid() || old.Addr == now.Addr {
		return nil
	}
	if err := netns.removeAddr(a.IfName, old); err != nil {
		return err
	}
	// Routes that preferred the old address as their source went with it.
	return configure(netns, a.IfName, now.Addr, podMTU(a.MTU, now.MTU), after)
}

func removeAddress(a attachment, lease dhcp.Lease) error {
	netns, err := openNetns(a.Netns)
	if err != nil {
		return err
	}
	defer netns.Close()
	return netns.removeAddr(a.IfName, lease)
}

func (p *podNetns) removeAddr(ifname string, lease dhcp.Lease) error {
	link, err := p.LinkByName(ifname)
	if err == nil {
		err = p.AddrDel(link, &netlink.Addr{IPNet: ipNet(lease.Addr)})
	}
	if errors.Is(err, errAddrNotAvailable) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove address %s from %s: %w", lease.Addr, ifname, err)
	}
	return nil
}

// interfaceGone undoes an attachment whose interface went without a DEL, as when
// the node was started anew.
func (s *Server) interfaceGone(ctx context.Context, key string, _ dhcp.Lease) {
	unlock, err := s.locks.lock(ctx, nil, key)
	if err != nil {
		return // somebody is at work on it
	}
	defer unlock()
	a, ok := s.records.Get(key)
	if !ok {
		err = s.keeper.Release(ctx, key)
	} else if a.State != stateAdding {
		err = s.undo(ctx, a, steps())
	}
	if err != nil {
		s.log.Warn("attachment whose interface is gone can't be undone yet", "key", key, "err", err)
	}
}

// releasable reports whether a lease is still the attachment's to give back. A
// newer sandbox, or a pod on another node, may have it by now.
func (s *Server) releasable(ctx context.Context, key string, lease dhcp.Lease) (bool, error) {
	a, ok := s.records.Get(key)
	if !ok {
		return true, nil
	}
	if s.superseded(a) {
		return false, nil
	}
	pods, err := s.podsWithMAC(ctx, a)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.UID != a.UID && hasMAC(p, lease.HardwareAddr)
	}), nil
}

// podsWithMAC are the pods that can have an attachment's MAC address: any, if it
// was asked for; else only one of the same name, since it derives from that.
func (s *Server) podsWithMAC(ctx context.Context, a attachment) ([]*corev1.Pod, error) {
	if a.MAC != podnet.DeriveMAC(s.cfg.ClusterID, a.Namespace, a.Pod, a.NADKey).String() {
		return s.cfg.Pods.ListPods(ctx)
	}
	pod, err := s.cfg.Pods.GetPod(ctx, a.Namespace, a.Pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return []*corev1.Pod{pod}, err
}

// hasMAC reports whether a pod that is not completed has an attachment with this
// MAC address on a DHCP network.
func hasMAC(pod *corev1.Pod, mac net.HardwareAddr) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	networks, err := podnet.ParseNetworks(pod.Annotations[podnet.Annotation])
	if err != nil {
		return false
	}
	for _, key := range networks.Keys() {
		if e, _, err := networks.Entry(key); err == nil && e.IPAMMode == podnet.IPAMTypeDHCP && e.MAC.String() == mac.String() {
			return true
		}
	}
	return false
}
