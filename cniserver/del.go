// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// del detaches a pod. It works from the record, and without one from what OVS
// knows of the sandbox; what is gone already is no error. An ADD that is under
// way ends; a caller that hangs up doesn't end the DEL.
func (s *Server) del(ctx context.Context, c call) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), delTimeout)
	defer cancel()
	s.locks.end(attachmentKey(c.containerID, c.ifname))
	unlock, err := s.locks.lock(ctx, nil, attachmentKey(c.containerID, c.ifname))
	if err != nil {
		return err
	}
	defer unlock()
	if a, ok := s.records.Get(attachmentKey(c.containerID, c.ifname)); ok {
		if err := s.undo(ctx, a, steps()); err != nil {
			return fmt.Errorf("detach pod %s/%s from network %s: %w", a.Namespace, a.Pod, a.Network, err)
		}
		return nil
	}
	names, err := s.vswitch.deletePorts(ctx, c.containerID, c.ifname)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := deleteVeth(name, hostMAC(c.containerID, c.ifname)); err != nil {
			return err
		}
	}
	return nil
}

// settle undoes, now and from time to time until ctx ends, the attachments that are
// due.
func (s *Server) settle(ctx context.Context) error {
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	if err := s.releaseOrphans(ctx); err != nil {
		return err
	}
	for {
		for key, a := range s.records.All() {
			if ctx.Err() != nil || !s.isDue(a) {
				continue
			}
			if err := s.settleOne(ctx, key); err != nil && ctx.Err() == nil {
				s.log.Warn("attachment can't be undone yet", "pod", a.Namespace+"/"+a.Pod, "sandbox", a.ContainerID, "ifname", a.IfName, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// isDue reports whether an attachment is to be undone: one whose ADD was cut off, or
// whose undoing has failed so far, and one of a virtual machine whose network namespace
// went without a DEL. Of other pods' the keeper tells.
func (s *Server) isDue(a attachment) bool {
	if a.State != stateLive || a.VM == "" {
		return a.State != stateLive
	}
	netns, err := openNetns(a.Netns)
	if err == nil {
		netns.Close()
	}
	if !isGone(err) {
		return false
	}
	// It may be this process that can't see it.
	there, err := s.stillThere(a)
	return !there && err == nil
}

// releaseOrphans gives back the leases that have no attachment's record.
func (s *Server) releaseOrphans(ctx context.Context) error {
	kept, _ := s.keeper.Keys()
	for _, key := range kept {
		if _, ok := s.records.Get(key); ok {
			continue
		}
		if err := s.keeper.Release(ctx, key); err != nil && !errors.Is(err, dhcp.ErrPending) {
			return err
		}
	}
	return nil
}

// settleOne undoes an attachment unless a call works on it: that one will have
// finished it when the lock is free.
func (s *Server) settleOne(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), delTimeout)
	defer cancel()
	unlock, err := s.locks.lock(ctx, nil, key)
	if err != nil {
		return err
	}
	defer unlock()
	a, ok := s.records.Get(key)
	if !ok || !s.isDue(a) {
		return nil
	}
	if a.State == stateLive {
		s.log.Warn("virtual machine's network namespace went without a DEL", "pod", a.Namespace+"/"+a.Pod, "netns", a.Netns, "ifname", a.IfName)
	}
	if a.Owing {
		// The keeper tries by itself; when it has done, the record can go.
		if kept, pending := s.keeper.Keys(); slices.Contains(pending, key) || slices.Contains(kept, key) {
			return nil
		}
		return s.records.Delete(key)
	}
	return s.undo(ctx, a, steps())
}
