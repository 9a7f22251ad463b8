// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
)

// step is one thing that an ADD does and how it is undone. An undo works from
// the record alone, since the ADD may have been another process's; it may find
// that what it undoes was never done, or is undone already, and then succeeds.
type step struct {
	name string
	do   func(*Server, context.Context, *adding) error
	undo func(*Server, context.Context, attachment) error
}

// steps are what an ADD does after its record is on disk, in order. A DEL, and
// an ADD that fails, undo them in reverse.
func steps() []step {
	return []step{
		{"announce MAC", (*Server).announce, (*Server).withdraw},
		{"plug", (*Server).plug, (*Server).unplug},
		{"join OVS", (*Server).join, (*Server).part},
		{"await OVN", (*Server).awaitOVN, nil},
		{"acquire lease", (*Server).acquire, (*Server).release},
		{"configure", (*Server).configure, nil},
		{"publish address", (*Server).publish, nil},
	}
}

// do takes all steps. When one fails it undoes that one and all before it.
func (s *Server) do(ctx context.Context, a *adding) error {
	for i, step := range steps() {
		err := step.do(s, ctx, a)
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

// undo undoes steps in reverse, all that it can. The record goes last, and only
// when nothing is left of the attachment.
func (s *Server) undo(ctx context.Context, a attachment, done []step) error {
	a.State = stateLeaving
	if err := s.records.Put(a.key(), a); err != nil {
		return err
	}
	var errs error
	for i := len(done) - 1; i >= 0; i-- {
		if done[i].undo == nil {
			continue
		}
		if err := done[i].undo(s, ctx, a); err != nil {
			errs = errors.Join(errs, fmt.Errorf("undo %q: %w", done[i].name, err))
		}
	}
	if errs != nil {
		return errs
	}
	return s.records.Delete(a.key())
}
