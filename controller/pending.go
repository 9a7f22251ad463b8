// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import "sync"

// pending is what has to be looked at again. It is filled by the source and by
// the database session while the loop is at work, and emptied by the loop: what
// comes during a transaction goes into the next one.
type pending struct {
	mu      sync.Mutex
	objects map[object]bool
	keys    map[key]bool
	heard   map[heard]bool
	all     bool
	// unwritten is what was learned, and of which port, but could not be written.
	unwritten map[heard]key

	wake   chan struct{} // holds a token when there is something
	once   sync.Once
	synced chan struct{} // closed once the source has told all that exists
}

func newPending() *pending {
	return &pending{
		objects: map[object]bool{},
		keys:    map[key]bool{},
		heard:   map[heard]bool{},
		wake:    make(chan struct{}, 1),

		unwritten: map[heard]key{},
		synced:    make(chan struct{}),
	}
}

func (p *pending) setSynced() { p.once.Do(func() { close(p.synced) }) }

func (p *pending) addObject(kind, namespace, name string) {
	p.add(func() { p.objects[object{kind, namespace, name}] = true })
}

// addOwner adds the group that the owner of a row names.
func (p *pending) addOwner(owner string) {
	if k, ok := parseKey(owner); ok {
		p.addKey(k)
	}
}

func (p *pending) addKey(k key) { p.add(func() { p.keys[k] = true }) }

// addAll has the loop look at everything.
func (p *pending) addAll() { p.add(func() { p.all = true }) }

// takeAll reports whether everything is to be looked at, once.
func (p *pending) takeAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = false
	return all
}

// addHeard adds a MAC address that a learner has heard something of.
func (p *pending) addHeard(routerPort, mac string) {
	p.add(func() { p.heard[heard{routerPort, mac}] = true })
}

// takeHeard takes what addHeard has added.
func (p *pending) takeHeard() map[heard]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.heard
	p.heard = map[heard]bool{}
	return h
}

// addUnwritten adds what was learned of a port, but could not be written.
func (p *pending) addUnwritten(h heard, port key) { p.add(func() { p.unwritten[h] = port }) }

// takeUnwritten takes what addUnwritten has added.
func (p *pending) takeUnwritten() map[heard]key {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.unwritten
	p.unwritten = map[heard]key{}
	return u
}

func (p *pending) add(put func()) {
	p.mu.Lock()
	put()
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pending) take() (objects map[object]bool, keys map[key]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	objects, keys = p.objects, p.keys
	p.objects, p.keys = map[object]bool{}, map[key]bool{}
	return objects, keys
}
