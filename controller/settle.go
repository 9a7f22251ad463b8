// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

const (
	// unboundAfter is how long the port of a pod that is gone may stay bound:
	// a RELEASE still has to pass.
	unboundAfter = 30 * time.Second
	// A group of rows that could not be written is tried again after minRetry,
	// and then after twice as long each time up to maxRetry.
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// settle brings the rows of some keys in line, in one transaction if all is
// well.
func (l *loop) settle(ctx context.Context, db database, keys []key) error {
	var steps []step
	for _, k := range keys {
		// What made it dirty until now is seen by this look.
		delete(l.inputs.dirty, k)
		s := step{key: k, outcome: l.inputs.desired(k)}
		delete(l.due, k)
		l.ledger.set(k.String(), append(s.outcome.problems, l.bindingProblems(time.Now(), k, s.outcome.rows)...))
		var act bool
		if s.want, act = l.target(k, s.outcome); !act {
			delete(l.retries, k)
			continue
		}
		have, err := db.Rows(k.String(), s.want)
		if err != nil {
			return err
		}
		if s.change, err = nbdb.Diff(k.String(), have, s.want); err != nil {
			l.refused(s, err)
			continue
		}
		if s.change.Empty() {
			delete(l.retries, k)
			continue
		}
		steps = append(steps, s)
	}
	slices.SortFunc(steps, func(a, b step) int { return strings.Compare(a.change.Key, b.change.Key) })
	return l.apply(ctx, db, steps)
}

// step is one key's part of a transaction.
type step struct {
	key     key
	outcome outcome
	want    nbdb.Rows
	change  nbdb.Change
}

// apply makes one transaction of all steps. When that is refused, it makes two
// of them, and so finds those to blame; the others go through.
func (l *loop) apply(ctx context.Context, db database, steps []step) error {
	if len(steps) == 0 {
		return nil
	}
	changes := make([]nbdb.Change, len(steps))
	for i, s := range steps {
		changes[i] = s.change
	}
	err := db.Apply(ctx, changes...)
	switch {
	case err == nil:
		for _, s := range steps {
			l.applied(s)
		}
		return nil
	case !errors.Is(err, nbdb.ErrRefused):
		return err
	case len(steps) == 1:
		l.refused(steps[0], err)
		return nil
	}
	half := len(steps) / 2
	if err := l.apply(ctx, db, steps[:half]); err != nil {
		return err
	}
	return l.apply(ctx, db, steps[half:])
}

func (l *loop) applied(s step) {
	l.log.Debug("rows written", "key", s.change.Key, "change", s.change)
	delete(l.retries, s.key)
	there := l.inputs.rows[s.key].present
	l.inputs.wrote(s.key, s.want)
	if there || s.key.group != groupNetwork {
		return
	}
	// Ports may have waited for their switch, or lost it with their rows.
	for _, nad := range l.inputs.rulings.networks[s.key.network] {
		l.inputs.touch(l.inputs.byNAD.of(nad.name))
	}
}

// refused notes that a key's rows could not be written, to try again later.
func (l *loop) refused(s step, err error) {
	wait := min(max(2*l.retries[s.key], minRetry), maxRetry)
	l.retries[s.key] = wait
	l.due[s.key] = time.Now().Add(wait)
	l.log.Warn("rows can't be written", "key", s.key.String(), "retry", wait, "err", err)
	problems := slices.Clone(s.outcome.problems)
	for _, o := range l.concerned(s.key) {
		problems = append(problems, problem{o, ReasonRefused, err.Error()})
	}
	l.ledger.set(s.key.String(), problems)
}

// concerned are the objects that a key's rows are made of.
func (l *loop) concerned(k key) []object {
	var objects []object
	if k.isPort() && l.inputs.pods[k.podName()] != nil {
		objects = append(objects, podObject(k.podName()))
	}
	if o := k.regulation(); l.inputs.regulations.all[o] != nil {
		return append(objects, o)
	}
	for _, nad := range l.inputs.rulings.networks[k.network] {
		objects = append(objects, nadObject(nad.name))
	}
	return objects
}

// target is what a key's rows are to be at this moment. act is false when there
// is nothing to do about them now.
func (l *loop) target(k key, d outcome) (want nbdb.Rows, act bool) {
	if d.keep || !d.rows.Empty() || !l.inputs.rows[k].present {
		delete(l.unwanted, k)
		return d.rows, !d.rows.Empty()
	}
	if k.group == groupNetwork {
		return nbdb.Rows{}, !l.inputs.heldByNet.has(k.network)
	}
	if !k.isPort() {
		return nbdb.Rows{}, true
	}
	if l.unwanted[k].IsZero() {
		l.unwanted[k] = time.Now()
	}
	if wait := unboundAfter - time.Since(l.unwanted[k]); wait > 0 && l.bound(k) && !l.inputs.awaited(k) {
		l.due[k] = time.Now().Add(wait)
		return nbdb.Rows{}, false
	}
	return nbdb.Rows{}, true
}
