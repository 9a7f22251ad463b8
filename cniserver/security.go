// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/watcher"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

const (
	// errandsAtATime is how many ports are worked on at the same time.
	errandsAtATime = 8
	// errandTimeout bounds one errand.
	errandTimeout = 30 * time.Second
	// recordInterval is the time between two writes of a port's record that nothing
	// else is written with.
	recordInterval = time.Second
	// What has failed is tried again after firstErrand, and then less and less often;
	// a lease that is to be given back is less urgent than the rest.
	firstErrand, longestErrand, longestRelease = time.Second, time.Minute, 10 * time.Minute
	// After a guest's ARP for an address that is not known, the annotation is read
	// soon, and then every lookInterval for lookTime: what the controller learns is
	// found there.
	lookDelay, lookInterval, lookTime = 200 * time.Millisecond, time.Second, 10 * time.Second
)

// errand is what is to be done about a guest's port.
type errand struct {
	// state is the port's, and changed says that it is to be recorded.
	state   watcher.State
	changed bool
	events  []watcher.Event
	// publish says that state.Published is to be written.
	publish bool
	// unused is the lease of an ADD that is to be given back; nil for none.
	unused *dhcp.Lease
	// look says that the annotation is to be read for what the controller has learned.
	look bool
}

// urgent reports whether there is more to do than to record the state.
func (e errand) urgent() bool { return e.publish || e.unused != nil || len(e.events) > 0 }

// followedBy is what is left of an errand together with what has come up since.
func (e errand) followedBy(later errand) errand {
	if later.unused == nil {
		later.unused = e.unused
	}
	later.changed = later.changed || e.changed
	later.publish = later.publish || e.publish
	later.events = slices.Concat(e.events, later.events)
	return later
}

// security holds guests to the addresses that they are seen to have: it has their
// ports watched, the state of each decided by what is seen, and done what follows.
// What is done is done beside the watching, for one port in order.
type security struct {
	watcher *watcher.Watcher
	log     *slog.Logger
	// follow does an errand. It returns what is left to do when it fails, and what the
	// controller has learned if it was to look for that.
	follow func(ctx context.Context, key string, e errand) (left errand, learned *dhcp.Lease, err error)
	// wake has run look at the ports again.
	wake chan struct{}

	mu    sync.Mutex
	ports map[string]*guestPort // by the attachment's key
	busy  int                   // errands under way
}

// guestPort is a port that is watched.
type guestPort struct {
	state watcher.State
	// serves says that the guest may be a DHCP server.
	serves bool
	todo   errand
	// end ends the errand that is under way; nil if none is.
	end func()
	// recorded is when the state was last written down, and retry when to try again
	// what has failed that often in a row.
	recorded, retry time.Time
	failures        int
	// looked is when the annotation was last read, look when it is to be next, zero for
	// never, and lookUntil when that ends.
	looked, look, lookUntil time.Time
}

func newSecurity(log *slog.Logger, follow func(context.Context, string, errand) (errand, *dhcp.Lease, error)) (*security, error) {
	g := &security{log: log, follow: follow, wake: make(chan struct{}, 1), ports: map[string]*guestPort{}}
	var err error
	g.watcher, err = watcher.New(watcher.Config{Report: g.observe, Log: log})
	return g, err
}

// watch begins to watch a port, where its record has come to.
func (g *security) watch(p watcher.Port, w watched) error {
	port := &guestPort{state: w.State, serves: w.AllowDHCPServer, todo: errand{publish: w.Untold, unused: w.Unused}}
	g.mu.Lock()
	g.ports[p.Key] = port
	g.mu.Unlock()
	if err := g.watcher.Watch(p); err != nil {
		g.drop(p.Key)
		return err
	}
	g.lookAgain()
	return nil
}

// forget stops watching a port, and ends an errand for it that is under way.
func (g *security) forget(key string) {
	g.watcher.Forget(key)
	g.drop(key)
}

func (g *security) drop(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.ports[key]; ok && p.end != nil {
		p.end()
	}
	delete(g.ports, key)
}

// observe is told what the watcher sees, and is not to keep it waiting.
func (g *security) observe(o watcher.Observation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.ports[o.Key]
	if !ok {
		return
	}
	if _, gone := o.Seen.(watcher.Gone); gone {
		// Who has removed the interface has a DEL follow, or the node's start does.
		g.log.Info("interface of a guest's port is gone", "key", o.Key)
		delete(g.ports, o.Key)
		return
	}
	g.log.Debug("seen at a guest's port", "key", o.Key, "what", fmt.Sprintf("%T %[1]v", o.Seen))
	if p.see(o.At, o.Seen) {
		g.lookAgain()
	}
}

// lookAgain has run look at the ports.
func (g *security) lookAgain() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// see decides upon a sighting, and returns whether run has to know.
func (p *guestPort) see(now time.Time, seen watcher.Sighting) bool {
	if _, serves := seen.(watcher.ServerTraffic); serves && p.serves {
		return false
	}
	old := p.state
	var effects []watcher.Effect
	p.state, effects = old.Next(now, seen)
	for _, e := range effects {
		p.retry, p.failures = time.Time{}, 0
		switch e := e.(type) {
		case watcher.Publish:
			p.todo.publish = true
		case watcher.ReleaseProbe:
			p.todo.unused = &e.Lease
		case watcher.Event:
			p.todo.events = append(p.todo.events, e)
		}
	}
	changed := len(effects) > 0 || moved(old, p.state)
	p.todo.changed = p.todo.changed || changed
	arp, ok := seen.(watcher.ARP)
	wondering := ok && p.wonder(now, arp)
	return changed || wondering || !p.state.Deadline().Equal(old.Deadline())
}

// moved reports whether a state differs from an older one in what a later daemon has to
// know. The rest, as when the guest last started over, it can do without.
func moved(old, now watcher.State) bool {
	return old.Phase != now.Phase || old.Confirmed != now.Confirmed || old.Void != now.Void ||
		old.Lease.Addr != now.Lease.Addr || !old.Lease.Expires.Equal(now.Lease.Expires) || old.Probe.Addr != now.Probe.Addr
}

// wonder plans to look whether the controller has learned an address that the guest
// has claimed, and returns whether it has.
func (p *guestPort) wonder(now time.Time, arp watcher.ARP) bool {
	if !p.state.Chooses || p.state.Phase == podnet.StateBound || arp.Sender.IsUnspecified() || arp.Sender == p.state.Lease.Addr.Addr() {
		return false
	}
	p.lookUntil = now.Add(lookTime)
	if !p.look.IsZero() {
		return false
	}
	p.look = now.Add(lookDelay)
	if next := p.looked.Add(lookInterval); next.After(p.look) {
		p.look = next
	}
	return true
}

// due is when the port's next errand is; the zero Time for none.
func (p *guestPort) due() time.Time {
	at := p.look
	var todo time.Time
	switch {
	case p.todo.urgent():
		todo = p.retry
	case p.todo.changed:
		if todo = p.recorded.Add(recordInterval); p.retry.After(todo) {
			todo = p.retry
		}
	default:
		return at
	}
	if at.IsZero() || todo.Before(at) {
		at = todo
	}
	if at.IsZero() {
		return p.state.Opened // long since
	}
	return at
}

// begin takes what there is to do; end can end the doing.
func (p *guestPort) begin(now time.Time, end func()) errand {
	e := p.todo
	e.state, e.look = p.state, !p.look.IsZero() && !now.Before(p.look)
	p.todo, p.end = errand{}, end
	if e.look {
		p.looked, p.look = now, time.Time{}
	}
	return e
}

// finish notes how an errand has ended.
func (p *guestPort) finish(now time.Time, e, left errand, learned *dhcp.Lease, err error) {
	p.end = nil
	p.todo = left.followedBy(p.todo)
	if e.changed || e.urgent() {
		p.recorded = now
	}
	p.retry = time.Time{}
	if err == nil {
		p.failures = 0
	} else {
		longest := longestErrand
		if !left.publish {
			longest = longestRelease
		}
		p.retry = now.Add(min(firstErrand<<min(p.failures, 20), longest))
		p.failures++
	}
	if learned != nil && learned.Addr.Addr() != p.state.Lease.Addr.Addr() {
		p.see(now, watcher.Learned{Lease: *learned})
	}
	if next := now.Add(lookInterval); e.look && p.look.IsZero() && p.state.Phase != podnet.StateBound && next.Before(p.lookUntil) {
		p.look = next
	}
}

// run has errands done and deadlines kept until ctx ends, and returns when all that it
// started has ended.
func (g *security) run(ctx context.Context) error {
	var working sync.WaitGroup
	defer working.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(g.dispatch(ctx, &working))
		select {
		case <-timer.C:
		case <-g.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// longestLull is how long run may sleep, so that it notices a clock that was set.
const longestLull = time.Minute

// dispatch begins what is due, as far as there is room for it, and returns when to look
// again if nothing happens.
func (g *security) dispatch(ctx context.Context, working *sync.WaitGroup) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, lull := time.Now(), longestLull
	for key, p := range g.ports {
		if at := p.state.Deadline(); !at.IsZero() && !now.Before(at) {
			p.see(now, watcher.Tick{})
		}
		if at := p.state.Deadline(); !at.IsZero() {
			lull = min(lull, at.Sub(now))
		}
		at := p.due()
		if at.IsZero() || p.end != nil {
			continue
		}
		if at.After(now) {
			lull = min(lull, at.Sub(now))
			continue
		}
		if g.busy == errandsAtATime {
			continue // the end of one has us look again
		}
		g.busy++
		bounded, cancel := context.WithTimeout(ctx, errandTimeout)
		e := p.begin(now, cancel)
		working.Go(func() {
			defer cancel()
			g.work(bounded, key, p, e)
		})
	}
	return max(lull, 0)
}

// work does an errand.
func (g *security) work(ctx context.Context, key string, p *guestPort, e errand) {
	left, learned, err := g.follow(ctx, key, e)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		g.log.Warn("guest's port can't be seen to yet", "key", key, "err", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	p.finish(time.Now(), e, left, learned, err)
	g.lookAgain()
}
