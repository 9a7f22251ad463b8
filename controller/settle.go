// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
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
	return l.apply(ctx, db, l.steps(db, keys))
}

// steps are what is to be done about keys. The port groups of a port that is to be
// made are among them, for it is not to be there without them: where one of these
// can't be written, the port waits.
func (l *loop) steps(db database, keys []key) []step {
	var steps []step
	looked := map[key]bool{}
	for work := keys; len(work) > 0; {
		var groups []key
		for _, k := range work {
			if looked[k] {
				continue
			}
			looked[k] = true
			s, act := l.step(db, k)
			if !act {
				continue
			}
			steps = append(steps, s)
			if !s.makesPort() {
				continue
			}
			for _, g := range l.inputs.roll.portGroups(k) {
				if l.retries[g] == 0 { // else it is tried again in its time
					groups = append(groups, g)
				}
			}
		}
		work = groups
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.makesPort() && l.waits(s) })
	slices.SortFunc(steps, func(a, b step) int { return strings.Compare(a.change.Key, b.change.Key) })
	return steps
}

// step is what is to be done about one key; act is false when that is nothing.
func (l *loop) step(db database, k key) (s step, act bool) {
	// What made it dirty until now is seen by this look.
	delete(l.inputs.dirty, k)
	s = step{key: k, outcome: l.inputs.desired(k)}
	delete(l.due, k)
	l.ledger.set(k.String(), append(s.outcome.problems, l.bindingProblems(time.Now(), k, s.outcome.rows)...))
	if s.want, act = l.target(k, s.outcome); !act {
		delete(l.retries, k)
		return s, false
	}
	var err error
	if s.change, err = nbdb.Diff(k.String(), db.Rows(k.String(), s.want), s.want); err != nil {
		l.refused(s, err)
		return s, false
	}
	if s.change.Empty() {
		delete(l.retries, k)
		return s, false
	}
	return s, true
}

// waits reports whether a port can't be made yet.
func (l *loop) waits(s step) bool {
	for _, group := range l.inputs.roll.portGroups(s.key) {
		if l.retries[group] > 0 {
			l.refused(s, fmt.Errorf("its port group of %s can't be written", group))
			return true
		}
	}
	return false
}

// step is one key's part of a transaction.
type step struct {
	key     key
	outcome outcome
	want    nbdb.Rows
	change  nbdb.Change
}

// makesPort reports whether the step makes the port of a pod.
func (s step) makesPort() bool {
	return s.key.isPort() && slices.ContainsFunc(s.change.Ports, func(e nbdb.Edit[nbdb.Port]) bool { return e.Have == nil })
}

// apply makes one transaction of all steps. When that is refused, it makes several,
// and so finds those to blame; the others go through. A port still comes together
// with its groups, and after everything else.
func (l *loop) apply(ctx context.Context, db database, steps []step) error {
	refusal, err := l.transact(ctx, db, steps)
	if refusal == nil || err != nil {
		return err
	}
	var ports []key
	rest := slices.DeleteFunc(slices.Clone(steps), func(s step) bool {
		if s.makesPort() {
			ports = append(ports, s.key)
		}
		return s.makesPort()
	})
	if len(ports) > 0 && len(rest) > 0 {
		if err := l.apply(ctx, db, rest); err != nil {
			return err
		}
		return l.applyPorts(ctx, db, ports)
	}
	half := len(steps) / 2
	if half == 0 {
		l.refused(steps[0], refusal)
		return nil
	}
	if err := l.apply(ctx, db, steps[:half]); err != nil {
		return err
	}
	return l.apply(ctx, db, steps[half:])
}

// applyPorts makes ports, in one transaction with what is still to be done about
// their groups. When that is refused, it makes two.
func (l *loop) applyPorts(ctx context.Context, db database, ports []key) error {
	steps := l.steps(db, ports)
	refusal, err := l.transact(ctx, db, steps)
	if refusal == nil || err != nil {
		return err
	}
	if half := len(ports) / 2; half > 0 {
		if err := l.applyPorts(ctx, db, ports[:half]); err != nil {
			return err
		}
		return l.applyPorts(ctx, db, ports[half:])
	}
	for _, s := range steps {
		if s.key == ports[0] {
			l.refused(s, refusal)
		}
	}
	return nil
}

// transact makes one transaction of steps, unless the database refuses it.
func (l *loop) transact(ctx context.Context, db database, steps []step) (refusal, err error) {
	if len(steps) == 0 {
		return nil, nil
	}
	changes := make([]nbdb.Change, len(steps))
	for i, s := range steps {
		changes[i] = s.change
	}
	if err := db.Apply(ctx, changes...); errors.Is(err, nbdb.ErrRefused) {
		return err, nil
	} else if err != nil {
		return nil, err
	}
	for _, s := range steps {
		l.applied(s)
	}
	return nil, nil
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
