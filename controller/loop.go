// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// database is the northbound database as the loop needs it.
type database interface {
	Keys() []string
	Rows(key string, want nbdb.Rows) nbdb.Rows
	Apply(ctx context.Context, changes ...nbdb.Change) error
}

// loop brings the rows of keys in line. Everything of it happens in run.
type loop struct {
	source     Source
	pluginType string
	log        *slog.Logger
	pending    *pending
	inputs     *inputs
	ledger     *ledger

	unwanted map[key]time.Time     // when rows were first seen to be unwanted
	retries  map[key]time.Duration // how long the last wait was
	due      map[key]time.Time     // when to look again without an event
	changed  map[object]bool       // policies and QoS that have changed in this turn
	learning learning
}

func newLoop(cfg Config, p *pending, m metrics) *loop {
	return &loop{
		source:     cfg.Source,
		pluginType: cfg.PluginType,
		log:        cfg.Log,
		pending:    p,
		inputs:     newInputs(cfg.PluginType, cfg.Zone, cfg.Learn),
		ledger:     newLedger(cfg.Source, cfg.Log, m),
		unwanted:   map[key]time.Time{},
		retries:    map[key]time.Duration{},
		due:        map[key]time.Time{},
		changed:    map[object]bool{},
		learning:   newLearning(cfg.AnnotatePod),
	}
}

// run works on one session with the database until ctx ends or the session
// fails. It begins with all keys.
func (l *loop) run(ctx context.Context, db database) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.pending.synced:
	}
	for _, owner := range db.Keys() {
		l.pending.addOwner(owner)
	}
	// What an earlier session has seen may be there no more.
	for k := range l.inputs.all() {
		l.pending.addKey(k)
	}
	for {
		if err := l.turn(ctx, db); err != nil {
			return err
		}
		if len(l.inputs.dirty) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.pending.wake:
		case <-l.alarm():
		}
	}
}

// alarm fires when something is due; it is nil when nothing is.
func (l *loop) alarm() <-chan time.Time {
	var waits []time.Duration
	if len(l.ledger.dirty) > 0 {
		waits = append(waits, minRetry)
	}
	for _, times := range []map[key]time.Time{l.due, l.learning.deaf} {
		for _, t := range times {
			waits = append(waits, time.Until(t))
		}
	}
	for _, r := range l.learning.recalls {
		waits = append(waits, time.Until(r.at))
	}
	if len(waits) == 0 {
		return nil
	}
	return time.After(slices.Min(waits))
}

// turn looks at what is pending, due or dirty, and makes the changes: networks
// first, since ports need them.
func (l *loop) turn(ctx context.Context, db database) error {
	objects, keys := l.pending.take()
	// Nodes first, since pods are on them.
	for o := range objects {
		if o.kind == kindNode {
			l.lookAtNode(o.name)
		}
	}
	for o := range objects {
		l.look(o)
	}
	// What is there matters to the rulings on NADs.
	for k := range keys {
		l.inputs.observe(k, db.Rows(k.String(), nbdb.Rows{}))
	}
	if l.inputs.rule() {
		l.ledger.set(kindNAD, l.inputs.nadProblems())
		l.setLearners()
	}
	l.hear(time.Now(), l.pending.takeHeard())
	l.listen(time.Now())
	if l.pending.takeAll() {
		maps.Copy(l.inputs.dirty, l.inputs.all())
	}
	maps.Copy(keys, l.inputs.takeDirty())
	for k, t := range l.due {
		if time.Until(t) <= 0 {
			keys[k] = true
		}
	}
	l.inputs.enrolAll(keys)
	l.reportRegulations()
	// Rows of a network that is not there yet come first, since all others need
	// them. The rest is one transaction, so that a port is never without what it
	// belongs to.
	var first, rest []key
	for k := range keys {
		if k.group == groupNetwork && !l.inputs.rows[k].present {
			first = append(first, k)
		} else {
			rest = append(rest, k)
		}
	}
	for _, batch := range [][]key{first, rest} {
		if err := l.settle(ctx, db, batch); err != nil {
			return err
		}
	}
	l.ledger.flush(ctx)
	for o := range objects {
		if l.gone(o) {
			l.ledger.forget(o)
		}
	}
	return nil
}

// look reads a pod or a NAD anew.
func (l *loop) look(o object) {
	name := o.namespace + "/" + o.name
	switch o.kind {
	case kindPod:
		var p *pod
		if object := l.source.Pod(o.namespace, o.name); object != nil {
			p = parsePod(object)
		}
		l.inputs.setPod(name, p)
		if l.inputs.placeOf(p) != here {
			l.ledger.set(o.String(), nil)
			return
		}
		l.ledger.set(o.String(), p.problems(o))
		if p.err != nil || len(p.entries) > 0 {
			l.ledger.know(o)
		}
	case kindNAD:
		var n *nad
		if object := l.source.Object(o.kind, o.namespace, o.name); object != nil {
			n = parseNAD(object, l.pluginType)
		}
		l.inputs.setNAD(name, n)
		if n != nil && n.ours {
			l.ledger.know(o)
		}
	case kindNamespace:
		var labels map[string]string
		if object := l.source.Object(o.kind, o.namespace, o.name); object != nil {
			labels = object.GetLabels()
		}
		l.inputs.setNamespace(o.name, labels)
	case kindPolicy, kindQoS:
		l.lookAtRegulation(o)
	}
}

// lookAtRegulation reads a policy or a QoS anew.
func (l *loop) lookAtRegulation(o object) {
	var r *regulation
	if object := l.source.Object(o.kind, o.namespace, o.name); object != nil {
		r = parseRegulation(object)
	}
	if l.inputs.setRegulation(o, r) {
		l.changed[o] = true
	}
}

// reportRegulations reports on the policies and QoS whose networks were looked
// for, as far as they are for networks of ours.
func (l *loop) reportRegulations() {
	for _, o := range l.inputs.regulations.takeLooked() {
		r := l.inputs.regulations.all[o]
		if !l.inputs.concerns(o, r) {
			l.ledger.set(o.String(), nil)
			continue
		}
		if l.ledger.know(o); l.changed[o] {
			l.ledger.renew(o)
		}
		l.ledger.set(o.String(), append(r.problems(o), l.inputs.absentNADs(o, r)...))
	}
	clear(l.changed)
}

// lookAtNode reads a node anew, and if it has changed, what is on it.
func (l *loop) lookAtNode(name string) {
	var n *node
	if object := l.source.Node(name); object != nil {
		n = parseNode(object)
	}
	if !l.inputs.setNode(name, n) {
		return
	}
	for pod := range l.inputs.podsByNode.of(name) {
		l.look(podObject(pod))
	}
}

// gone reports whether an object does not exist, as far as was looked.
func (l *loop) gone(o object) bool {
	name := o.namespace + "/" + o.name
	switch o.kind {
	case kindPod:
		return l.inputs.pods[name] == nil
	case kindNAD:
		return l.inputs.nads[name] == nil
	case kindPolicy, kindQoS:
		return l.inputs.regulations.all[o] == nil
	}
	return false
}
