// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/watcher"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// watched is what is known of the port of a guest that is watched.
type watched struct {
	State watcher.State `json:"state"`
	// Untold says that what State.Published says may not have been written yet.
	Untold bool `json:"untold,omitempty"`
	// Unused is the lease that the ADD got and the guest has no use for, until it is
	// given back.
	Unused *dhcp.Lease `json:"unused,omitempty"`
	// AllowDHCPServer says that the guest may be a DHCP server.
	AllowDHCPServer bool `json:"allow_dhcp_server,omitempty"`
}

// watchGuest begins to watch the port of a guest whose address was discovered. What was
// heard there so far was the ADD's own client.
func (s *Server) watchGuest(ctx context.Context, a *adding) error {
	if a.course.tenure != discovered || a.learn == podnet.LearnOff {
		return nil
	}
	now := time.Now()
	state := watcher.NewState(now)
	state.Chooses = a.learn == podnet.LearnAll
	state, effects := state.Next(now, watcher.Probed{Lease: a.lease})
	for _, e := range effects {
		// The address itself the ADD publishes.
		if e, ok := e.(watcher.Event); ok {
			s.tellEvent(ctx, a.attachment, e)
		}
	}
	a.Watched = &watched{State: state, AllowDHCPServer: a.conf.AllowDHCPServer}
	return s.watch(a.attachment)
}

func (s *Server) forgetGuest(_ context.Context, a attachment) error {
	s.security.forget(a.key())
	return nil
}

func (s *Server) watch(a attachment) error {
	mac, err := podnet.ParseMAC(a.MAC)
	if err != nil {
		return err
	}
	return s.security.watch(watcher.Port{Key: a.key(), Interface: a.HostIfName, MAC: mac}, *a.Watched)
}

// watchAgain goes on with the ports that a former daemon has watched.
func (s *Server) watchAgain() {
	for key, a := range s.records.All() {
		if a.State != stateLive || a.Watched == nil {
			continue
		}
		if err := s.watch(a); err != nil {
			s.log.Warn("guest's port can't be watched: its address will not be followed", "pod", a.Namespace+"/"+a.Pod, "key", key, "err", err)
		}
	}
}

// followGuest does what is to be done about a guest's port, unless its attachment is
// gone, or on its way out.
func (s *Server) followGuest(ctx context.Context, key string, e errand) (left errand, learned *dhcp.Lease, err error) {
	a, ok, err := s.recordGuest(ctx, key, e)
	if err != nil {
		return e, nil, err
	}
	if !ok {
		return errand{}, nil, nil
	}
	for _, event := range e.events {
		s.tellEvent(ctx, a, event)
	}
	left = errand{publish: e.publish, unused: e.unused}
	if e.look {
		if learned, err = s.learnedOf(ctx, a); err != nil {
			return left, nil, err
		}
	}
	if e.publish {
		newer, err := s.publishGuest(ctx, a, e.state)
		if err != nil {
			return left, learned, err
		}
		if newer != nil {
			learned = newer
		}
		left.publish = false
	}
	if e.unused != nil {
		if err := s.releaseUnused(ctx, key, *e.unused); err != nil {
			left.changed = e.publish
			return left, learned, err
		}
		left.unused = nil
	}
	left.changed = e.publish // for the record to say that it is told
	return left, learned, nil
}

// recordGuest writes an errand into its attachment's record, and returns that; not ok
// if there is nothing to be done for it any more.
func (s *Server) recordGuest(ctx context.Context, key string, e errand) (a attachment, ok bool, err error) {
	// While its ADD is under way, the record is the ADD's.
	unlock, err := s.locks.lock(ctx, nil, key)
	if err != nil {
		return a, false, err
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return a, false, err // the record may be another port's by now
	}
	if a, ok = s.records.Get(key); !ok || a.State != stateLive || a.Watched == nil {
		return a, false, nil
	}
	if !e.changed && !e.urgent() {
		return a, true, nil
	}
	a.Watched = &watched{State: e.state, Untold: e.publish, Unused: e.unused, AllowDHCPServer: a.Watched.AllowDHCPServer}
	return a, true, s.records.Put(key, a)
}

func (s *Server) tellEvent(ctx context.Context, a attachment, e watcher.Event) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	s.event(ctx, a, kind, e.Reason, fmt.Sprintf("network %s: %s", a.Network, e.Message))
}

// publishGuest writes what is said of a guest's port into the annotation and into the
// vSwitch. What the controller has learned meanwhile is returned, not overwritten,
// unless a server has granted something.
func (s *Server) publishGuest(ctx context.Context, a attachment, state watcher.State) (learned *dhcp.Lease, err error) {
	mac, err := podnet.ParseMAC(a.MAC)
	if err != nil {
		return nil, err
	}
	p := state.Published
	learns := p.State != podnet.StateBound && (state.Chooses || a.Device != nil)
	err = s.cfg.Pods.AnnotatePod(ctx, a.Namespace, a.Pod, a.UID, podnet.Annotation, func(old string) (string, error) {
		learned = nil
		if now, ok := s.records.Get(a.key()); !ok || now.State != stateLive || s.superseded(a) {
			return "", errSuperseded
		}
		networks, err := podnet.ParseNetworks(old)
		if err != nil {
			return "", err
		}
		if e, _, err := networks.Entry(a.NADKey); err == nil && learns {
			if learned = learnedLease(e, mac); learned != nil && learned.Addr.Addr() != p.Addr.Addr() {
				return old, nil
			}
			learned = nil
		}
		networks, err = networks.With(a.NADKey, publicationEntry(mac, p))
		return networks.String(), err
	})
	switch {
	case errors.Is(err, errSuperseded), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil || learned != nil:
		return learned, err
	}
	var addr string
	if p.Addr.IsValid() {
		addr = p.Addr.String()
	}
	return nil, s.vswitch.setExternalID(ctx, a.HostIfName, idAddresses, addr)
}

// publicationEntry is what the pod's annotation says of a guest's port.
func publicationEntry(mac net.HardwareAddr, p watcher.Publication) podnet.Entry {
	e := lostEntry(mac)
	if p.Addr.IsValid() {
		e = leaseEntry(mac, dhcp.Lease{Addr: p.Addr, Gateway: p.Gateway, Server: p.Server, Expires: p.Expires}, nil)
	}
	e.DHCP.State = p.State
	return e
}

// learnedOf is the address that the controller has learned of a guest and written into
// its pod's annotation; nil if there is none.
func (s *Server) learnedOf(ctx context.Context, a attachment) (*dhcp.Lease, error) {
	mac, err := podnet.ParseMAC(a.MAC)
	if err != nil {
		return nil, err
	}
	pod, err := s.cfg.Pods.GetPod(ctx, a.Namespace, a.Pod)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != a.UID {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	networks, err := podnet.ParseNetworks(pod.Annotations[podnet.Annotation])
	if err != nil {
		return nil, err
	}
	e, _, err := networks.Entry(a.NADKey)
	if err != nil {
		return nil, err
	}
	return learnedLease(e, mac), nil
}

// learnedLease is the address of an entry that says that it was learned: it is bound
// without end, since no server has granted it. nil if it says something else.
func learnedLease(e podnet.Entry, mac net.HardwareAddr) *dhcp.Lease {
	if e.DHCP == nil || e.DHCP.State != podnet.StateBound || e.DHCP.Expires != nil || len(e.Addrs) == 0 {
		return nil
	}
	lease := &dhcp.Lease{Addr: e.Addrs[0], HardwareAddr: mac}
	if len(e.Gateways) > 0 {
		lease.Gateway = e.Gateways[0]
	}
	if e.DHCP.Server != nil {
		lease.Server = *e.DHCP.Server // the network's, for whom nobody may speak
	}
	return lease
}

// releaseUnused gives back the lease that an ADD got for a guest which has another one
// now. It leaves by the bridge: the guest's port is held to the other address, and what
// is sent there is taken for the guest's.
func (s *Server) releaseUnused(ctx context.Context, key string, unused dhcp.Lease) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unlock, err := s.locks.lock(ctx, cancel, key)
	if err != nil {
		return err
	}
	defer unlock()
	a, ok := s.records.Get(key)
	if !ok || a.State != stateLive || a.Watched == nil {
		return nil // who undoes it sees to it
	}
	if ours(unused, a.Watched.State.Lease, time.Now()) {
		ok, err := s.releasable(ctx, key, unused)
		if err != nil {
			return err
		}
		if ok {
			if err := s.releaseByBridge(ctx, key, unused); err != nil {
				return fmt.Errorf("give back %s, which the guest has not taken: %w", unused.Addr.Addr(), err)
			}
		}
	}
	done := *a.Watched
	done.Unused = nil
	a.Watched = &done
	// The keeper has held it for the guest.
	return errors.Join(s.records.Put(key, a), s.keeper.Forget(ctx, key))
}

// ours reports whether an unused lease is still there to be given back, beside the
// guest's own: to a server, a lease is a client identifier's and an address's. The
// same client's other lease has taken its place already.
func ours(unused, guest dhcp.Lease, now time.Time) bool {
	ended := !unused.Expires.IsZero() && !now.Before(unused.Expires)
	replaced := guest.Server == unused.Server && bytes.Equal(guest.ClientID, unused.ClientID)
	return !ended && !replaced && guest.Addr.Addr() != unused.Addr.Addr()
}
