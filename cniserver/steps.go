// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// step is one thing that an ADD does and how it is undone. An undo works from
// the record alone, since the ADD may have been another process's; it may find
// that what it undoes was never done, or is undone already, and then succeeds.
type step struct {
	name string
	do   func(*Server, context.Context, *adding) error
	undo func(*Server, context.Context, attachment) error
}

// steps are what an ADD does, in order. A DEL, and an ADD that fails, undo them
// in reverse; the record that the first step writes goes when all is undone.
func steps() []step {
	return []step{
		// The lease that it takes over from an older sandbox is to be given back,
		// also if it never comes to the acquiring.
		{"open record", (*Server).open, (*Server).release},
		{"announce MAC", (*Server).announce, (*Server).withdraw},
		{"plug", (*Server).plug, (*Server).unplug},
		{"join OVS", (*Server).join, (*Server).part},
		{"await OVN", (*Server).awaitOVN, nil},
		{"acquire lease", (*Server).acquire, (*Server).release},
		{"watch guest", (*Server).watchGuest, (*Server).forgetGuest},
		{"configure", (*Server).configure, nil},
		{"publish address", (*Server).publish, nil},
		{"close record", (*Server).close, nil},
	}
}

// do takes all steps. When one fails it undoes that one and all before it.
func (s *Server) do(ctx context.Context, a *adding) error {
	for i, step := range steps() {
		started := time.Now()
		err := s.act("do "+step.name, func() error { return step.do(s, ctx, a) })
		s.log.Debug("step of an ADD", "step", step.name, "took", time.Since(started), "sandbox", a.ContainerID, "ifname", a.IfName)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", step.name, err)
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if undoErr := s.undo(undo, a.attachment, steps()[:i+1]); undoErr != nil {
			err = errors.Join(err, fmt.Errorf("not all could be undone, to be tried again: %w", undoErr))
		}
		return err
	}
	return nil
}

// undo undoes steps in reverse, up to one that fails: what it needs, as the
// RELEASE needs the interface, stays for the next try. The record goes last, and
// stays while the lease is still to be given back, which is no error.
func (s *Server) undo(ctx context.Context, a attachment, done []step) error {
	a.State = stateLeaving
	marked := s.act("undo: mark record", func() error { return s.records.Put(a.key(), a) })
	if marked != nil {
		// Say, a full disk: all the more reason to go on.
		s.log.Warn("attachment can't be marked as leaving", "sandbox", a.ContainerID, "ifname", a.IfName, "err", marked)
	}
	owing := false
	for i := len(done) - 1; i >= 0; i-- {
		step := done[i]
		if step.undo == nil {
			continue
		}
		err := s.act("undo "+step.name, func() error { return step.undo(s, ctx, a) })
		switch {
		case errors.Is(err, dhcp.ErrPending):
			s.log.Warn("lease is to be given back later", "pod", a.Namespace+"/"+a.Pod, "sandbox", a.ContainerID, "ifname", a.IfName, "err", err)
			owing = true
		case err != nil:
			return fmt.Errorf("undo %q: %w", step.name, err)
		}
	}
	if owing {
		// The keeper asks by the record whose the lease is.
		a.Owing = true
		return s.records.Put(a.key(), a)
	}
	return s.act("undo: delete record", func() error { return s.records.Delete(a.key()) })
}

// act does one thing that has an effect outside of the process. It is where
// tests make things fail.
func (s *Server) act(what string, do func() error) error {
	if err := fault("before " + what); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return fault("after " + what)
}
