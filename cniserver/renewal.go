// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// reasonLeaseLost is the reason of the Event about a lease that has ended.
const reasonLeaseLost = "DHCPLeaseLost"

// leaseChanged puts a lease that the server has changed to use: the new address
// before the old one goes. A lease that only lasts longer changes nothing.
func (s *Server) leaseChanged(ctx context.Context, key string, old, now dhcp.Lease) error {
	a, ok, err := s.inUse(key)
	if !ok || err != nil {
		return err
	}
	reason, message := change(a.Network, old, now)
	if reason == "" {
		return nil
	}
	mac, err := podnet.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	routes, err := reconfigure(a, old, now)
	if err != nil {
		return err
	}
	if err := s.vswitch.setExternalID(ctx, a.HostIfName, idAddresses, now.Addr.String()); err != nil {
		return err
	}
	if err := s.tell(ctx, a, leaseEntry(mac, now, routes)); err != nil {
		return err
	}
	s.event(ctx, a, corev1.EventTypeNormal, reason, message)
	return nil
}

// leaseLost takes address and routes of a lease that has ended off the pod. The link
// stays up, and the keeper goes on trying to get another lease.
func (s *Server) leaseLost(ctx context.Context, key string, lease dhcp.Lease) error {
	a, ok, err := s.inUse(key)
	if !ok || err != nil {
		return err
	}
	mac, err := podnet.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	if err := deconfigure(a, lease); err != nil {
		return err
	}
	if err := s.vswitch.setExternalID(ctx, a.HostIfName, idAddresses, ""); err != nil {
		return err
	}
	if err := s.tell(ctx, a, lostEntry(mac)); err != nil {
		return err
	}
	s.event(ctx, a, corev1.EventTypeWarning, reasonLeaseLost, fmt.Sprintf("address %s on network %s is not the pod's any more: its lease has ended, and DHCP server %s has not prolonged it, or a server has refused it", lease.Addr, a.Network, lease.Server))
	return nil
}

// inUse returns the attachment that uses a lease, if there is one. While its ADD
// is under way the error has the keeper tell again.
func (s *Server) inUse(key string) (a attachment, ok bool, err error) {
	a, ok = s.records.Get(key)
	if ok && a.State == stateAdding {
		return a, false, fmt.Errorf("the ADD of pod %s/%s is under way", a.Namespace, a.Pod)
	}
	return a, ok && a.State == stateLive, nil
}

// tell writes the pod's annotation; a pod that is gone needs none.
func (s *Server) tell(ctx context.Context, a attachment, e podnet.Entry) error {
	if err := s.annotate(ctx, a, e); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// event tells of something on the pod. That it can't be told is no reason to do
// again what it tells of.
func (s *Server) event(ctx context.Context, a attachment, eventType, reason, message string) {
	err := s.cfg.Pods.Event(ctx, a.Namespace, a.Pod, a.UID, eventType, reason, message)
	s.log.Info("event on a pod", "pod", a.Namespace+"/"+a.Pod, "ifname", a.IfName, "reason", reason, "message", message, "err", err)
}

// reconfigure replaces one lease by another on the pod's interface: the new one's
// address and routes are there before the old one's go. It returns the new routes.
func reconfigure(a attachment, old, now dhcp.Lease) ([]route, error) {
	netns, err := openNetns(a.Netns)
	if err != nil {
		return nil, err
	}
	defer netns.Close()
	before, err := netns.routesFor(a, old)
	if err != nil {
		return nil, err
	}
	after, err := netns.routesFor(a, now)
	if err != nil {
		return nil, err
	}
	if err := netns.configure(a, now, after); err != nil {
		return nil, err
	}
	stale := slices.DeleteFunc(before, func(r route) bool { return slices.Contains(after, r) })
	if err := netns.removeRoutes(a, stale); err != nil {
		return nil, err
	}
	if !old.Addr.IsValid() || old.Addr == now.Addr {
		return after, nil
	}
	if err := netns.removeAddr(a.IfName, old); err != nil {
		return nil, err
	}
	// Routes that preferred the old address as their source went with it.
	return after, netns.configure(a, now, after)
}

// deconfigure takes a lease off the pod's interface. Its routes would stay while the
// interface has another address.
func deconfigure(a attachment, lease dhcp.Lease) error {
	netns, err := openNetns(a.Netns)
	if err != nil {
		return err
	}
	defer netns.Close()
	routes, err := netns.routesFor(a, lease)
	if err != nil {
		return err
	}
	return errors.Join(netns.removeRoutes(a, routes), netns.removeAddr(a.IfName, lease))
}

func (p *podNetns) removeAddr(ifname string, lease dhcp.Lease) error {
	link, err := p.LinkByName(ifname)
	if err == nil {
		err = p.AddrDel(link, &netlink.Addr{IPNet: ipNet(lease.Addr)})
	}
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil // it is gone already
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
	if !ok || a.State == stateAdding {
		return
	}
	// If the interface is there, it is the network namespace that this process
	// can't see.
	if there, err := s.stillThere(a); there || err != nil {
		s.log.Error("the interface of an attachment can't be seen, though it must be there", "pod", a.Namespace+"/"+a.Pod, "netns", a.Netns, "ifname", a.IfName, "err", err)
		return
	}
	err = s.undo(ctx, a, steps())
	if err != nil {
		s.log.Warn("attachment whose interface is gone can't be undone yet", "key", key, "err", err)
	}
}

// stillThere reports whether the node shows that an attachment's interface is in
// some network namespace: the other end of a pair goes with it, and the interface of
// a device comes back to the node. A device that was passed to a guest is open in it.
func (s *Server) stillThere(a attachment) (bool, error) {
	switch {
	case a.Device == nil:
		return hostVethExists(a)
	case s.deviceTaken(a):
		return false, nil
	case a.Device.Passed:
		err := s.devices.Unused(a.Device.PCI)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // there is no such device any more
		}
		return err != nil, err
	case a.Device.Parent == "":
		return false, nil
	}
	link, err := a.Device.find(netlink.LinkList)
	return link == nil, err
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
	return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return succeeds(p, a, lease.HardwareAddr) }), nil
}

// podsWithMAC are the pods that can have an attachment's MAC address: any, if it
// was asked for; else only one of the same name, or of the same virtual machine, since
// it derives from that.
func (s *Server) podsWithMAC(ctx context.Context, a attachment) ([]*corev1.Pod, error) {
	if a.VM != "" && a.MAC == podnet.DeriveVMMAC(s.cfg.ClusterID, a.Namespace, a.VM, a.NADKey).String() {
		return s.cfg.Pods.ListPods(ctx, a.Namespace, nil)
	}
	if a.MAC != podnet.DeriveMAC(s.cfg.ClusterID, a.Namespace, a.Pod, a.NADKey).String() {
		return s.cfg.Pods.ListPods(ctx, corev1.NamespaceAll, nil)
	}
	pod, err := s.cfg.Pods.GetPod(ctx, a.Namespace, a.Pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return []*corev1.Pod{pod}, err
}

// succeeds reports whether a pod is another one than an attachment's, has not
// completed, and has an attachment to the same NAD with this MAC address.
func succeeds(pod *corev1.Pod, a attachment, mac net.HardwareAddr) bool {
	if pod.UID == a.UID || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	networks, err := podnet.ParseNetworks(pod.Annotations[podnet.Annotation])
	if err != nil {
		return false
	}
	for _, key := range networks.Keys() {
		if e, _, err := networks.Entry(key); err == nil && podnet.NADName(key) == podnet.NADName(a.NADKey) && e.MAC.String() == mac.String() {
			return true
		}
	}
	return false
}
