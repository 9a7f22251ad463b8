// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	giveUp, err := s.turns.take(ctx, a.key, cancel)
	if err != nil {
		return err
	}
	defer giveUp()

	has := s.keeper.Holds(a.key)
	client, err := s.client(a, has)
	if client.Link != nil {
		defer s.closeLater(a.key, client.Link)
	}
	if err != nil {
		return err
	}
	lease, err := s.keeper.Acquire(ctx, a.key, client)
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

// client is the client of an attachment that the Keeper has a record of, or that gets its
// lease now, with a Link that is to be closed, after an error too.
func (s *Server) client(a call, has bool) (c dhcp.Client, err error) {
	if !a.hasNetns() {
		return c, fmt.Errorf("network namespace %q is not an absolute path", a.netns)
	}
	at := place{Netns: a.netns, IfName: a.ifname, Priority: a.conf.IPAM.Priority}
	c.Netns, c.IfName = at.Netns, at.IfName
	if c.Config, err = a.client(); err != nil {
		return c, err
	}
	c.Config.Probe = s.cfg.Probe
	if has {
		c.Config.HardwareAddr, err = s.present(a.key, &at)
	} else if c.Link, err = s.openLink(at); err == nil {
		c.Config.HardwareAddr = c.Link.HardwareAddr()
		at.Via, at.Port = s.wayOut(a, at)
		err = c.Link.SetUp() // plugins do so when they have the result
	}
	if err != nil {
		return c, err
	}
	c.Data, err = json.Marshal(at)
	return c, err
}

func (s *Server) openLink(at place) (*dhcp.Link, error) {
	path, err := dhcp.InRoot(s.cfg.HostPrefix, at.Netns)
	if err != nil {
		return nil, err
	}
	return dhcp.OpenLink(path, at.IfName)
}

// closeLater closes a Link while nobody waits for it.
func (s *Server) closeLater(key string, link *dhcp.Link) {
	s.closing.Go(func() {
		if err := link.Close(); err != nil {
			s.cfg.Log.Warn("close a DHCP client's socket", "key", key, "err", err)
		}
	})
}

// present is the hardware address of the interface of an attachment that has a lease in
// use on it, and fills in the way out of its place. One that has lost its lease, or whose
// ADD was cut off together with the daemon, is not to get one this way: CHECK has nobody who
// would put it on the interface, and what comes before another ADD is a DEL.
func (s *Server) present(key string, at *place) (net.HardwareAddr, error) {
	lease, ok := s.keeper.Lease(key)
	if !ok {
		return nil, errors.New("the interface has no lease at present: it was lost, or its ADD was cut off")
	}
	known, err := s.place(key)
	if err != nil {
		return nil, err
	}
	at.Via, at.Port = known.Via, known.Port
	d, err := at.open(s.cfg.HostPrefix)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	hw := d.link.Attrs().HardwareAddr
	if !bytes.Equal(lease.HardwareAddr, hw) {
		return nil, fmt.Errorf("the interface had hardware address %s when it got its lease, and has %s now", lease.HardwareAddr, hw)
	}
	return hw, nil
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
	return s.configure(key, now, func(d *device, at place) error { return d.follow(old, now, at.Priority) })
}

// withdraw takes a lease that has ended off the interface. It is the Keeper's OnLost.
func (s *Server) withdraw(_ context.Context, key string, lease dhcp.Lease) error {
	return s.configure(key, lease, func(d *device, _ place) error { return d.withdraw(lease) })
}

// configure works on the interface that an attachment has a lease on.
func (s *Server) configure(key string, lease dhcp.Lease, work func(*device, place) error) error {
	at, err := s.place(key)
	if err != nil {
		return err
	}
	return at.configure(s.cfg.HostPrefix, lease, work)
}

// releaseElsewhere gives back the lease of an interface that is gone: the plugin bridge
// removes it before it calls for the RELEASE. It is the Keeper's SendRelease.
func (s *Server) releaseElsewhere(ctx context.Context, key string, lease dhcp.Lease) error {
	at, err := s.place(key)
	if err != nil {
		return err
	}
	if at.Via == "" {
		return dhcp.ErrNoOtherWay
	}
	device, err := s.host.LinkByName(at.Via) // or by an alternative name
	switch {
	case errors.As(err, &netlink.LinkNotFoundError{}):
		err = fmt.Errorf("%w: %w", dhcp.ErrNoOtherWay, err)
	case err == nil && at.Port:
		err = checkBridge(device)
	}
	if err != nil {
		return fmt.Errorf("interface %s, which the network can be reached by: %w", at.Via, err)
	}
	link, err := dhcp.OpenLink("", device.Attrs().Name)
	if err != nil {
		return err
	}
	err = dhcp.Release(ctx, link, lease)
	if errors.Is(err, dhcp.ErrUnconfirmed) {
		err = nil // replies to the client's address don't come to this device
	}
	return errors.Join(err, link.Close())
}
