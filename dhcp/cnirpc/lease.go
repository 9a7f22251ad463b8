// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// releaseTime bounds a Release, and the wait for other calls before it.
const releaseTime = 30 * time.Second

// allocate gets a lease, or the one that there is. What it has got when it fails, it
// gives back, unless the attachment had it before.
func (s *Server) allocate(ctx context.Context, args *skel.CmdArgs, result *types100.Result) error {
	a, err := parseCall(args)
	if err != nil {
		return err
	}
	cfg, err := a.client()
	if err != nil {
		return err
	}
	if !a.hasNetns() {
		return fmt.Errorf("network namespace %q is not an absolute path", a.netns)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	giveUp, err := s.turns.take(ctx, a.key, cancel)
	if err != nil {
		return err
	}
	defer giveUp()

	at := place{Netns: s.cfg.HostPrefix + a.netns, IfName: a.ifname, Priority: a.conf.IPAM.Priority}
	link, err := dhcp.OpenLink(at.Netns, at.IfName)
	if err != nil {
		return err
	}
	defer s.closeLater(link)
	cfg.HardwareAddr = link.HardwareAddr()
	has, err := s.hasLease(a.key, cfg.HardwareAddr)
	if err != nil {
		return err
	}
	if !has {
		if err := link.SetUp(); err != nil { // plugins do so when they have the result
			return err
		}
		if at.Via, err = s.wayOut(args.StdinData, at); err != nil {
			return err
		}
	}
	data, err := json.Marshal(at)
	if err != nil {
		return err
	}
	lease, err := s.keeper.Acquire(ctx, a.key, dhcp.Client{Netns: at.Netns, IfName: a.ifname, Config: cfg, Link: link, Data: data})
	if err != nil {
		if cause := context.Cause(ctx); cause == errDeleted {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		if !has {
			err = errors.Join(err, s.giveBack(context.WithoutCancel(ctx), a.key))
		}
		return err
	}
	fill(result, lease, a.conf.IPAM.Priority)
	return nil
}

// closeLater closes a Link while nobody waits for it.
func (s *Server) closeLater(link *dhcp.Link) {
	s.closing.Go(func() {
		if err := link.Close(); err != nil {
			s.cfg.Log.Warn("close a DHCP client's socket", "err", err)
		}
	})
}

// hasLease reports whether an attachment has a lease in use, on an interface with this
// hardware address. One that has lost its lease, or whose ADD was cut off together with
// the daemon, is not to get one this way: CHECK has nobody who would put it on the
// interface, and what comes before another ADD is a DEL.
func (s *Server) hasLease(key string, hw net.HardwareAddr) (bool, error) {
	lease, ok := s.keeper.Lease(key)
	if ok && lease.HardwareAddr.String() != hw.String() {
		return false, fmt.Errorf("the interface had hardware address %s when it got its lease, and has %s now", lease.HardwareAddr, hw)
	}
	if !ok && s.keeper.Holds(key) {
		return false, errors.New("the interface has no lease at present: it was lost, or its ADD was cut off")
	}
	return ok, nil
}

func (s *Server) release(ctx context.Context, args *skel.CmdArgs) error {
	a, err := parseCall(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	giveUp, err := s.turns.take(ctx, a.key, nil)
	if err != nil {
		return err
	}
	defer giveUp()
	return s.giveBack(ctx, a.key)
}

// giveBack gives back what an attachment has. What can't be given back now is the
// Keeper's to try again.
func (s *Server) giveBack(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	err := s.keeper.Release(ctx, key)
	if errors.Is(err, dhcp.ErrPending) {
		s.cfg.Log.Warn("DHCP lease will be given back later", "key", key, "err", err)
		return nil
	}
	return err
}

// follow puts a lease that has changed on the interface. It is the Keeper's OnChange.
func (s *Server) follow(_ context.Context, key string, old, now dhcp.Lease) error {
	return s.configure(key, func(d *device, at place) error { return d.follow(old, now, at.Priority) })
}

// withdraw takes a lease that has ended off the interface. It is the Keeper's OnLost.
func (s *Server) withdraw(_ context.Context, key string, lease dhcp.Lease) error {
	return s.configure(key, func(d *device, _ place) error { return d.withdraw(lease) })
}

// configure works on an attachment's interface. There is nothing to do for one that is
// gone; the Keeper finds that out, too.
func (s *Server) configure(key string, work func(*device, place) error) error {
	at, err := s.place(key)
	if err != nil {
		return err
	}
	d, err := at.open()
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return work(d, at)
}

// releaseElsewhere gives back the lease of an interface that is gone: the plugin bridge
// removes it before it calls for the RELEASE. It is the Keeper's SendRelease.
func (s *Server) releaseElsewhere(ctx context.Context, key string, lease dhcp.Lease) error {
	at, err := s.place(key)
	if err != nil {
		return err
	}
	if at.Via == "" {
		return errors.New("the interface was no port of a bridge, nor on top of another one")
	}
	link, err := dhcp.OpenLink("", at.Via)
	if err != nil {
		return err
	}
	err = dhcp.Release(ctx, link, lease)
	if errors.Is(err, dhcp.ErrUnconfirmed) {
		err = nil // replies to the client's address don't come to this device
	}
	return errors.Join(err, link.Close())
}
