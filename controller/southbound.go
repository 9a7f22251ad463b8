// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/sbdb"
)

const (
	// bindWithin is how long OVN may take to bind a port before that is a problem.
	bindWithin = 10 * time.Second
	// deafFor is how long a learner doesn't listen to a port that floods it.
	deafFor = 5 * time.Minute
	// relearnAfter is when an address is accepted again that should be in the
	// annotation by then.
	relearnAfter = 5 * time.Second
	// recallAfter is when what was refused is looked at again: the guest won't tell
	// again, and who has the address may be gone.
	recallAfter = 10 * time.Second
	// writeTimeout bounds the writing of an address that was learned.
	writeTimeout = 10 * time.Second
)

// southbound is OVN's southbound database as the loop needs it.
type southbound interface {
	Binding(port string) (b sbdb.Binding, known bool)
	Lessons(routerPort, mac string) []sbdb.Lesson
	SetLearners(routerPorts map[string]bool)
	Unlearn(ctx context.Context, lessons ...sbdb.Lesson) error
}

// heard is a MAC address that a learner has heard something of.
type heard struct{ routerPort, mac string }

// AnnotatePod replaces the value of one annotation of the pod with this UID by
// what change makes of the present one, "" standing for an annotation that is not
// set. Nothing that somebody else writes meanwhile is lost.
type AnnotatePod func(ctx context.Context, namespace, name string, uid types.UID, annotation string, change func(old string) (string, error)) error

// learning is what the loop does about the addresses that OVN learns. All of it
// happens in the loop, but for the writing.
type learning struct {
	sb       southbound // nil if it is not watched
	annotate AnnotatePod
	errands  *errands
	networks map[string]string // by the router port of their learner
	deaf     map[key]time.Time // until when ports that flood are not listened to
	accepted map[key]acceptance
	recalls  map[heard]recall
	unbound  map[key]time.Time // since when ports are not where they should be
}

// recall is when to look again at what was heard of a MAC address, because it was
// refused or could not be written.
type recall struct {
	at time.Time
	// port is whose it was then; the zero key if it was nobody's.
	port key
}

func newLearning(annotate AnnotatePod) learning {
	return learning{
		annotate: annotate,
		errands:  newErrands(),
		networks: map[string]string{},
		deaf:     map[key]time.Time{},
		accepted: map[key]acceptance{},
		recalls:  map[heard]recall{},
		unbound:  map[key]time.Time{},
	}
}

// acceptance is an address that is on its way into an annotation.
type acceptance struct {
	addr netip.Addr
	at   time.Time
	// failed says that it didn't get there.
	failed bool
}

// setLearners has the view watch the learners of the networks that there are.
func (l *loop) setLearners() {
	if l.learning.sb == nil {
		return
	}
	ports := map[string]bool{}
	clear(l.learning.networks)
	for network := range l.inputs.rulings.networks {
		if l.inputs.learns(network) {
			port := podnet.LearnerPortName(network)
			ports[port] = true
			l.learning.networks[port] = network
		}
	}
	l.learning.sb.SetLearners(ports)
}

// hear looks at what learners have heard of MAC addresses, and again at what is
// due.
func (l *loop) hear(now time.Time, all map[heard]bool) {
	l.note(now, l.pending.takeUnwritten())
	for h, r := range l.learning.recalls {
		if !now.Before(r.at) {
			all[h] = true
		}
	}
	useless := map[heard][]sbdb.Lesson{}
	for h := range all {
		var c conclusion
		network, ok := l.learning.networks[h.routerPort]
		if ok {
			c = l.inputs.conclude(now, network, h.mac, l.learning.sb.Lessons(h.routerPort, h.mac))
		}
		if before := l.learning.recalls[h].port; before != c.port && before != (key{}) {
			l.ledger.set(lessonsOf(before), nil)
			delete(l.learning.accepted, before)
		}
		delete(l.learning.recalls, h)
		if len(c.useless) > 0 {
			useless[h] = c.useless
		}
		if c.port != (key{}) {
			l.follow(now, network, h, c)
		}
	}
	if len(useless) > 0 {
		l.learning.errands.add("useless", func(ctx context.Context) { l.unlearn(ctx, useless) })
	}
}

// note has what could not be written looked at again.
func (l *loop) note(now time.Time, unwritten map[heard]key) {
	for h, port := range unwritten {
		if a, ok := l.learning.accepted[port]; ok {
			a.failed = true
			l.learning.accepted[port] = a
		}
		l.learning.recalls[h] = recall{now.Add(minRetry), cmp.Or(port, l.learning.recalls[h].port)}
	}
}

// lessonsOf is where problems with what a port's guest says come from.
func lessonsOf(k key) string { return "lessons/" + k.String() }

// follow does what follows from a conclusion about a port.
func (l *loop) follow(now time.Time, network string, h heard, c conclusion) {
	from := lessonsOf(c.port)
	if c.refused != "" {
		l.learning.recalls[h] = recall{now.Add(recallAfter), c.port}
		l.ledger.set(from, []problem{{podObject(c.port.podName()), ReasonAddressRefused, fmt.Sprintf("attachment %s: %s", c.port.nadKey, c.refused)}})
		return
	}
	l.ledger.set(from, nil)
	if c.flood {
		l.ledger.set("flood/"+c.port.String(), []problem{{podObject(c.port.podName()), ReasonFlood,
			fmt.Sprintf("attachment %s speaks from more than %d addresses: OVN does not learn from it for %v", c.port.nadKey, floodLimit, deafFor)}})
		l.deafen(c.port, network, now.Add(deafFor))
	}
	if !c.accept.IsValid() {
		return
	}
	last := l.learning.accepted[c.port]
	same := last.addr == c.accept.Addr()
	if same && !last.failed && now.Sub(last.at) < relearnAfter {
		return
	}
	if !same || !last.failed {
		l.inputs.changed(now, c.port)
	}
	maps.DeleteFunc(l.learning.accepted, func(_ key, a acceptance) bool { return now.Sub(a.at) >= changesAllow })
	l.learning.accepted[c.port] = acceptance{addr: c.accept.Addr(), at: now}
	l.log.Info("address learned", "pod", c.port.podName(), "nad", c.port.nadKey, "address", c.accept)
	l.learning.errands.add(c.port.String(), func(ctx context.Context) { l.learn(ctx, h, c) })
}

// learn writes the address that was heard. It runs beside the loop.
func (l *loop) learn(ctx context.Context, h heard, c conclusion) {
	writing, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := l.learning.annotate(writing, c.port.namespace, c.port.pod, types.UID(c.uid), podnet.Annotation, func(old string) (string, error) {
		return learned(old, c.port, c.accept)
	})
	if err != nil {
		l.unwritten(ctx, fmt.Errorf("learned address of pod %s: %w", c.port.podName(), err), c.port, h)
		return
	}
	l.unlearn(ctx, map[heard][]sbdb.Lesson{h: c.superseded})
}

// unlearn has learners forget. It runs beside the loop.
func (l *loop) unlearn(ctx context.Context, lessons map[heard][]sbdb.Lesson) {
	writing, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	all := slices.Concat(slices.Collect(maps.Values(lessons))...)
	for some := range slices.Chunk(all, 500) {
		if err := l.learning.sb.Unlearn(writing, some...); err != nil {
			l.unwritten(ctx, err, key{}, slices.Collect(maps.Keys(lessons))...)
			return
		}
	}
}

// unwritten has the loop look again at what could not be written: of a port, or of
// nobody's, as the zero key has it.
func (l *loop) unwritten(ctx context.Context, err error, port key, all ...heard) {
	if ctx.Err() != nil {
		return
	}
	l.log.Warn("what was learned can't be written", "err", err)
	for _, h := range all {
		l.pending.addUnwritten(h, port)
	}
}

// deafen keeps a learner from listening to a port.
func (l *loop) deafen(k key, network string, until time.Time) {
	name := podnet.PortName(k.nadKey, k.namespace, k.pod)
	if l.inputs.flooding[network] == nil {
		l.inputs.flooding[network] = map[string]bool{}
	}
	if !l.inputs.flooding[network][name] {
		l.inputs.flooding[network][name] = true
		l.inputs.dirty[networkKey(network)] = true
	}
	l.learning.deaf[k] = until
}

// listen ends the deafness of ports for which it is time, or that are gone.
func (l *loop) listen(now time.Time) {
	for k, until := range l.learning.deaf {
		if now.Before(until) && l.inputs.rows[k].present {
			continue
		}
		delete(l.learning.deaf, k)
		l.ledger.set("flood/"+k.String(), nil)
		for network, ports := range l.inputs.flooding {
			if name := podnet.PortName(k.nadKey, k.namespace, k.pod); ports[name] {
				delete(ports, name)
				l.inputs.dirty[networkKey(network)] = true
			}
		}
	}
}

// bound reports whether OVN has bound a port: some chassis has it, or where the
// southbound database is not watched, the northbound one says so.
func (l *loop) bound(k key) bool {
	if l.learning.sb != nil {
		if b, known := l.learning.sb.Binding(podnet.PortName(k.nadKey, k.namespace, k.pod)); known {
			return b.Bound()
		}
	}
	return l.inputs.rows[k].bound
}

// bindingProblems are what is wrong with where a port is bound that is wanted on
// a chassis. A port that is not bound is given some time.
func (l *loop) bindingProblems(now time.Time, k key, want nbdb.Rows) []problem {
	if l.learning.sb == nil || !k.isPort() || len(want.Ports) == 0 {
		delete(l.learning.unbound, k)
		return nil
	}
	port := want.Ports[0]
	chassis := port.Options["requested-chassis"]
	b, known := l.learning.sb.Binding(port.Name)
	if !known || b.On(chassis) {
		delete(l.learning.unbound, k)
		return nil
	}
	trouble := func(format string, args ...any) []problem {
		return []problem{{podObject(k.podName()), ReasonNotBound, fmt.Sprintf("port %s of attachment %s, which is for chassis %s, ", port.Name, k.nadKey, chassis) + fmt.Sprintf(format, args...)}}
	}
	if b.Bound() {
		return trouble("is bound on chassis %s (%s)", b.Chassis, b.Hostname)
	}
	if l.learning.unbound[k].IsZero() {
		l.learning.unbound[k] = now
	}
	since := l.learning.unbound[k]
	if wait := bindWithin - now.Sub(since); wait > 0 {
		l.due[k] = now.Add(wait)
		return nil
	}
	return trouble("has not been bound by any for %v", now.Sub(since).Round(time.Second))
}
