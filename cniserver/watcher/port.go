// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Port is a guest's port.
type Port struct {
	// Key is the caller's name for it.
	Key string
	// Interface is the host's end of it, in the process's network namespace: a veth,
	// or a VF's representor.
	Interface string
	// MAC is the guest's address.
	MAC net.HardwareAddr
}

func (p Port) check() error {
	if p.Key == "" || p.Interface == "" {
		return errors.New("port without key or interface")
	}
	if len(p.MAC) != 6 || p.MAC[0]&1 != 0 {
		return fmt.Errorf("port %s: %q is not a unicast Ethernet address", p.Key, p.MAC)
	}
	return nil
}

const (
	// portBudget is how many frames of a port are read before the others have a turn.
	portBudget = 16
	// A class that came too fast is not listened to for so long.
	mutedFor = time.Second
	// goneInterval is how often an interface that went down is looked at.
	goneInterval = time.Second
	// frameSize holds any DHCP message that Ethernet carries.
	frameSize = 2048
)

// tap is the open socket of a port. Run alone uses it.
type tap struct {
	Port
	fd       int
	listener listener
	quotas   map[class]*quota
	// heard are the classes that the filter lets pass, and muted until when it does
	// not let pass the others.
	heard     class
	muted     map[class]time.Time
	discarded uint64
	// checkGone is when to look whether the interface is gone; zero unless it is down.
	checkGone time.Time
}

func openTap(p Port) (*tap, error) {
	fd, err := openSocket(p.Interface, p.MAC)
	if err != nil {
		return nil, err
	}
	return &tap{
		Port: p, fd: fd, heard: everything, listener: listener{mac: p.MAC}, muted: map[class]time.Time{},
		quotas: map[class]*quota{replies: {}, messages: {}, noise: {}},
	}, nil
}

// drain reads the frames of one turn. Whatever it makes of them is reported.
func (t *tap) drain(now time.Time, buf []byte, report func(Sighting)) error {
	for range portBudget {
		n, toGuest, err := receive(t.fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return nil
		case errors.Is(err, unix.ENETDOWN):
			t.checkGone = now // it may be on its way out, or come up again
			return nil
		case err != nil:
			return err
		}
		c := t.listener.class(buf[:n], toGuest)
		if t.heard&c == 0 || !t.quotas[c].take(now) {
			t.discarded++
			if err := t.mute(now, c); err != nil {
				return err
			}
			continue
		}
		if seen := t.listener.hear(now, buf[:n], toGuest); seen != nil {
			report(seen)
		}
	}
	return nil
}

// mute stops listening to a class, if that is not so already.
func (t *tap) mute(now time.Time, c class) error {
	if t.heard&c == 0 {
		return nil
	}
	t.heard &^= c
	t.muted[c] = now.Add(mutedFor)
	return listenFor(t.fd, t.MAC, t.heard)
}

// tend does what is due. It returns false when the interface is gone.
func (t *tap) tend(now time.Time, report func(Sighting)) (there bool, err error) {
	if !t.checkGone.IsZero() && !now.Before(t.checkGone) {
		if interfaceGone(t.fd) {
			report(Gone{})
			return false, nil
		}
		t.checkGone = now.Add(goneInterval)
	}
	for c, until := range t.muted {
		if now.Before(until) {
			continue
		}
		delete(t.muted, c)
		t.heard |= c
		if err := listenFor(t.fd, t.MAC, t.heard); err != nil {
			return true, err
		}
		report(Overrun{Class: c.String(), Discarded: t.discarded + overflowed(t.fd)})
		t.discarded = 0
	}
	return true, nil
}

// due is when tend has something to do; the zero Time if never.
func (t *tap) due() time.Time {
	at := t.checkGone
	for _, until := range t.muted {
		at = earlier(at, until)
	}
	return at
}

// earlier is the earlier one of two times of which the zero Time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
