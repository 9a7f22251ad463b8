// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// loop is what Run has of its own.
type loop struct {
	w             *Watcher
	epoll, wakeFD int
	byKey         map[string]*tap
	byFD          map[int32]*tap
	buf           []byte
	events        []unix.EpollEvent
	closer        *closer
}

func newLoop(w *Watcher) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating eventfd: %w", err), unix.Close(epoll))
	}
	l := &loop{
		w: w, epoll: epoll, wakeFD: wake, byKey: map[string]*tap{}, byFD: map[int32]*tap{},
		buf: make([]byte, frameSize), events: make([]unix.EpollEvent, 64), closer: newCloser(),
	}
	if err := l.add(wake); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loop) add(fd int) error {
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	if err != nil {
		return fmt.Errorf("adding to epoll: %w", err)
	}
	return nil
}

// close forgets all ports.
func (l *loop) close() {
	for _, c := range l.w.take() {
		if c.tap != nil {
			l.closer.close(c.tap.fd)
		}
	}
	for _, t := range l.byKey {
		l.closer.close(t.fd)
	}
	l.closer.close(l.epoll)
	l.closer.close(l.wakeFD)
	l.closer.wait()
}

// turn waits for something to do and does it. Sockets that still have frames come
// behind the others in the next turn: that is how epoll orders them.
func (l *loop) turn() error {
	for _, c := range l.w.take() {
		l.forget(c.key)
		if c.tap == nil {
			continue
		}
		if err := l.add(c.tap.fd); err != nil {
			l.closer.close(c.tap.fd)
			return err
		}
		l.byKey[c.key], l.byFD[int32(c.tap.fd)] = c.tap, c.tap
	}
	n, err := unix.EpollWait(l.epoll, l.events, l.timeout(time.Now()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("waiting for frames: %w", err)
	}
	now := time.Now()
	for _, e := range l.events[:max(n, 0)] {
		if t, ok := l.byFD[e.Fd]; ok {
			l.complain(t, t.drain(now, l.buf, l.reporter(t, now)))
		} else {
			var count [8]byte
			_, _ = unix.Read(l.wakeFD, count[:])
		}
	}
	l.tend(now)
	return nil
}

// timeout is how long to wait at most, in milliseconds; -1 for ever.
func (l *loop) timeout(now time.Time) int {
	var at time.Time
	for _, t := range l.byKey {
		at = earlier(at, t.due())
	}
	if at.IsZero() {
		return -1
	}
	return int(max(0, at.Sub(now)+time.Millisecond-1) / time.Millisecond)
}

// tend does what is due at the ports.
func (l *loop) tend(now time.Time) {
	for key, t := range l.byKey {
		at := t.due()
		if at.IsZero() || now.Before(at) {
			continue
		}
		there, err := t.tend(now, l.reporter(t, now))
		l.complain(t, err)
		if !there {
			l.forget(key)
		}
	}
}

func (l *loop) reporter(t *tap, now time.Time) func(Sighting) {
	return func(s Sighting) { l.w.cfg.Report(Observation{Key: t.Key, At: now, Seen: s}) }
}

// complain logs what a port's socket refuses to do. It is no reason to end: the
// others are fine, and so may it be, next time.
func (l *loop) complain(t *tap, err error) {
	if err != nil {
		l.w.cfg.Log.Warn("watching a port", "port", t.Key, "interface", t.Interface, "err", err)
	}
}

func (l *loop) forget(key string) {
	t, ok := l.byKey[key]
	if !ok {
		return
	}
	delete(l.byKey, key)
	delete(l.byFD, int32(t.fd))
	// The closing would take it out too, but only later.
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, t.fd, nil); err != nil {
		l.complain(t, fmt.Errorf("removing from epoll: %w", err))
	}
	l.closer.close(t.fd)
}

// closer closes files beside the loop: the kernel takes 4 to 20 ms for a packet
// socket, nearly all of it waiting, which several do together.
type closer struct {
	fds     chan int
	working sync.WaitGroup
}

// closers is how many files are closed at a time, each by a thread.
const closers = 8

func newCloser() *closer {
	c := &closer{fds: make(chan int, 64)}
	for range closers {
		c.working.Go(func() {
			for fd := range c.fds {
				_ = unix.Close(fd) // there is nothing to be lost
			}
		})
	}
	return c
}

func (c *closer) close(fd int) { c.fds <- fd }

// wait returns when all is closed.
func (c *closer) wait() {
	close(c.fds)
	c.working.Wait()
}
