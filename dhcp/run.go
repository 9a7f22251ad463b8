// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// A clock that was set is noticed within longestSleep.
	longestSleep = time.Minute
	// answerTime is how long the answer to a renewing client is waited for. A server
	// has nothing to find out for it, and the interface is open all the time.
	answerTime = 4 * time.Second
	// restartTime is how long a client that has lost its lease tries at a time.
	restartTime  = 10 * time.Second
	callbackTime = 30 * time.Second
)

// Run keeps the leases until ctx ends, and returns ctx's error when all that was under
// way has ended too. It is called once; the Keeper is of no use after it.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.lock.Close()
	defer k.syncRecords(ctx)()
	defer k.end()
	k.working.Go(func() { k.lookForGone(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(k.dispatch(ctx))
		select {
		case <-timer.C:
		case <-k.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// syncRecords begins to have the records written to the disk, after ctx's end too. What it
// returns ends that, when the last one is there.
func (k *Keeper) syncRecords(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var syncing sync.WaitGroup
	syncing.Go(func() {
		k.records.SyncLater(ctx, func(err error) { k.cfg.Log.Error("DHCP leases would not outlive a power failure", "err", err) })
	})
	return func() {
		cancel()
		syncing.Wait()
	}
}

// end ends all claims and admits no more.
func (k *Keeper) end() {
	k.mu.Lock()
	k.ended = true
	for _, e := range k.entries {
		if e.holder != nil {
			e.holder.cancel(errEnded)
		}
	}
	k.mu.Unlock()
	k.working.Wait()
}

// lookAgain has Run look at the queues.
func (k *Keeper) lookAgain() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// dispatch begins what is due, as far as there is room for it, and returns when to look
// again if nothing happens.
func (k *Keeper) dispatch(ctx context.Context) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, sleep := time.Now(), longestSleep
	for _, q := range k.queues {
		for q.free > 0 && q.Len() > 0 {
			e := q.entries[0]
			if e.at.After(now) {
				sleep = min(sleep, e.at.Sub(now))
				break
			}
			q.free--
			c := k.take(ctx, e, working)
			k.working.Go(func() {
				err := k.work(c)
				c.giveUp()
				c.closing.Wait() // there are not to be more sockets than exchanges
				k.mu.Lock()
				q.free++
				k.mu.Unlock()
				k.lookAgain()
				if errors.Is(err, errGone) {
					k.reportGone(ctx, c.key)
				}
			})
		}
	}
	return sleep
}

// speaks tells what has to do with servers, and with the disk, from what has to do with
// the caller: neither is to wait for the other.
func (a action) speaks() bool { return a != tell }

// work does what is next for a record. It logs what goes wrong, unless it was cut off,
// and returns it for the caller to look at.
func (k *Keeper) work(c *claim) error {
	r, ok := k.records.Get(c.key)
	if !ok {
		return nil
	}
	now := time.Now()
	what, at := next(now, r, c.entry.progress)
	if what == idle || at.After(now) {
		return nil
	}
	err := k.act(c, what, r)
	if err != nil && c.ctx.Err() == nil {
		k.cfg.Log.Warn("DHCP lease", "key", c.key, "ifname", r.Client.IfName, "doing", what.String(), "err", err)
	}
	return err
}

func (a action) String() string {
	return [...]string{"idle", "renew", "rebind", "expire", "start over", "give back", "drop", "tell of a change"}[a]
}

func (k *Keeper) act(c *claim, what action, r record) error {
	switch what {
	case renew:
		return k.prolong(c, r, r.Lease.Renew, r.Lease.Rebind)
	case rebind:
		return k.prolong(c, r, r.Lease.Rebind, r.Lease.Expires)
	case expire:
		return k.lose(c, r)
	case startOver:
		return k.startOver(c, r)
	case giveBack:
		return k.giveBack(c, r)
	case drop:
		return k.records.Delete(c.key)
	case tell:
		return k.tell(c, r)
	}
	return nil
}

// speak opens the client's interface for one exchange.
func (k *Keeper) speak(c *claim, r record, own netip.Addr, exchange func(port) (Lease, error)) (Lease, error) {
	p, err := k.ground.open(r.Client, own)
	if err != nil {
		return Lease{}, err
	}
	// Closing takes the kernel longer than an exchange of messages.
	c.closing.Add(1)
	defer k.working.Go(func() {
		defer c.closing.Done()
		if err := p.Close(); err != nil {
			k.cfg.Log.Warn("close a DHCP client's socket", "key", c.key, "err", err)
		}
	})
	return exchange(p)
}

// prolong asks for more time, in the state that lasts from start to end.
func (k *Keeper) prolong(c *claim, r record, start, end time.Time) error {
	asked := time.Now()
	again := retransmission(progress{asked: asked, spread: 0.5}, r.Lease.Acquired, start, end)
	rebinding := start.Equal(r.Lease.Rebind)
	lease, err := k.speak(c, r, r.Lease.Addr.Addr(), func(p port) (Lease, error) {
		return prolong(c.ctx, p, r.Client.config(), *r.Lease, rebinding, min(answerTime, again.Sub(asked)))
	})
	refused, isRefusal := errors.AsType[*refusal](err)
	switch {
	case err == nil:
		c.entry.succeeded()
		return k.keep(c, r, lease)
	case c.ctx.Err() != nil:
		return err
	case isRefusal:
		// The address must no longer be used, nor is there any use in asking for it.
		c.entry.failed(asked)
		c.entry.progress.failures = 1
		r.State, r.Lease = lost, nil
		return errors.Join(refused, k.records.Put(c.key, r))
	default:
		c.entry.failed(asked)
		return err
	}
}

// keep writes down a lease that a server has granted.
func (k *Keeper) keep(c *claim, r record, lease Lease) error {
	r.State, r.Lease = bound, &lease
	if k.cfg.OnChange == nil {
		r.Told = &lease
	}
	return k.records.Put(c.key, r)
}

// lose takes away a lease that has expired.
func (k *Keeper) lose(c *claim, r record) error {
	if !k.exists(r) && k.toldGone(c.entry, r) {
		return k.records.Delete(c.key)
	}
	c.entry.succeeded() // so that the first try comes at once
	r.State = lost
	if k.cfg.OnLost == nil {
		r.Told = nil
	}
	if err := k.records.Put(c.key, r); err != nil {
		return err
	}
	k.cfg.Log.Warn("DHCP lease has expired", "key", c.key, "ifname", r.Client.IfName, "addr", r.Lease.Addr, "server", r.Lease.Server)
	return nil
}

// exists reports whether the network namespace of a client is there, as far as can be
// told.
func (k *Keeper) exists(r record) bool {
	place, err := k.ground.identify(r.Client.Netns, nil)
	if err == nil {
		return place == r.Client.Place
	}
	// No namespace outlives the start of the machine that it was made in.
	boot, unknown := k.ground.identify("", nil)
	return !errors.Is(err, errGone) && (unknown != nil || strings.HasPrefix(r.Client.Place, boot))
}

// startOver looks for a new lease.
func (k *Keeper) startOver(c *claim, r record) error {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, restartTime)
	defer cancel()
	asking := record{Lease: r.unended(asked)}
	cfg := asking.askingFor(r.Client.config(), r.Lease)
	cfg.Selected = func(offer Lease) error {
		r.Lease = &offer
		return k.records.Put(c.key, r)
	}
	cfg.Denied = func() error {
		r.Lease = nil
		return k.records.Put(c.key, r)
	}
	lease, err := k.speak(c, r, netip.Addr{}, func(p port) (Lease, error) { return acquireOn(ctx, p, r.Client.IfName, cfg) })
	switch {
	case err == nil:
		c.entry.succeeded()
		return k.keep(c, r, lease)
	case c.ctx.Err() != nil:
		return err
	case errors.Is(err, errGone) && k.toldGone(c.entry, r):
		if r.unended(time.Now()) == nil {
			return k.records.Delete(c.key)
		}
		r.State, r.Told = held, nil // it is still to be given back, by somebody else, or forgotten
		return k.records.Put(c.key, r)
	}
	if silence, ok := errors.AsType[*SilenceError](err); ok && silence.Conflict != "" {
		asked = time.Now().Add(declineWait) // its time may have been up before that
	}
	c.entry.failed(asked)
	return err
}

// giveBack gives a lease back and forgets it, if it is the client's to give back.
func (k *Keeper) giveBack(c *claim, r record) error {
	now := time.Now()
	if r.unended(now) == nil || k.heldByOther(c.key, *r.Lease) {
		return k.records.Delete(c.key)
	}
	ctx, cancel := context.WithTimeout(c.ctx, callbackTime)
	defer cancel()
	if k.cfg.Releasable != nil {
		yes, err := k.cfg.Releasable(ctx, c.key, *r.Lease)
		if err != nil {
			c.entry.failed(now)
			return fmt.Errorf("finding out who has the lease: %w", err)
		}
		if !yes {
			return k.records.Delete(c.key)
		}
	}
	_, err := k.speak(c, r, netip.Addr{}, func(p port) (Lease, error) { return Lease{}, release(ctx, p, *r.Lease) })
	if err != nil {
		err = k.giveBackElsewhere(ctx, c.key, *r.Lease, err)
	}
	if err != nil {
		c.entry.failed(now)
		return fmt.Errorf("releasing %s: %w", r.Lease.Addr, err)
	}
	return k.records.Delete(c.key)
}

// giveBackElsewhere gives a lease back when an attempt to do so from the client's interface
// has ended with an error.
func (k *Keeper) giveBackElsewhere(ctx context.Context, key string, lease Lease, err error) error {
	other := ErrNoOtherWay
	if k.cfg.SendRelease != nil {
		other = k.cfg.SendRelease(ctx, key, lease)
	}
	switch {
	case other == nil:
		return nil
	case errors.Is(err, ErrUnconfirmed) && errors.Is(other, ErrNoOtherWay):
		return nil // it was sent, and there is no better way
	case k.cfg.SendRelease == nil:
		return err
	}
	return errors.Join(err, other)
}

// heldByOther reports whether another key has taken the lease over: for a server it is the
// client id's, whatever the hardware address (RFC 2131, 2 and 4.2).
func (k *Keeper) heldByOther(key string, lease Lease) bool {
	for other, r := range k.records.All() {
		if other != key && r.State != releasing && r.Lease != nil && r.Lease.Addr.Addr() == lease.Addr.Addr() && r.Lease.Server == lease.Server &&
			string(r.Lease.ClientID) == string(lease.ClientID) {
			return true
		}
	}
	return false
}

// tell has the caller use what it may use, and notes that it does.
func (k *Keeper) tell(c *claim, r record) error {
	ctx, cancel := context.WithTimeout(c.ctx, callbackTime)
	defer cancel()
	var old Lease
	if r.Told != nil {
		old = *r.Told
	}
	var err error
	switch usable := r.usable(); {
	case usable != nil && k.cfg.OnChange != nil:
		err = k.cfg.OnChange(ctx, c.key, old, *usable)
	case usable == nil && k.cfg.OnLost != nil:
		err = k.cfg.OnLost(ctx, c.key, old)
	}
	if err == nil {
		r.Told = r.usable()
		err = k.records.Put(c.key, r)
	}
	p := &c.entry.progress
	if err == nil {
		p.told, p.refusals = time.Time{}, 0
		return nil
	}
	if c.ctx.Err() == nil {
		p.told, p.spread = time.Now(), rand.Float64()
		p.refusals++
	}
	return err
}

// lookForGone reports, at the start, the leases whose network namespace is gone.
func (k *Keeper) lookForGone(ctx context.Context) {
	for key, r := range k.records.All() {
		if ctx.Err() == nil && !k.exists(r) {
			k.reportGone(ctx, key)
		}
	}
}

// toldGone reports whether the caller was told, or is being told, that the interface of a
// record is gone.
func (k *Keeper) toldGone(e *entry, r record) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.gone == r.Client.Place
}

// reportGone tells the caller, once, that the interface of a lease is gone.
func (k *Keeper) reportGone(ctx context.Context, key string) {
	r, ok := k.records.Get(key)
	if !ok || r.State == releasing {
		return
	}
	lease := r.Client.nothing()
	if r.Lease != nil {
		lease = *r.Lease
	}
	k.mu.Lock()
	e, first := k.entries[key]
	if first {
		first = e.gone != r.Client.Place
		e.gone = r.Client.Place
	}
	k.mu.Unlock()
	if !first {
		return
	}
	if k.cfg.OnGone != nil {
		ctx, cancel := context.WithTimeout(ctx, callbackTime)
		defer cancel()
		k.cfg.OnGone(ctx, key, lease)
		return
	}
	if err := k.Release(ctx, key); err != nil && ctx.Err() == nil {
		k.cfg.Log.Warn("DHCP lease of an interface that is gone", "key", key, "ifname", r.Client.IfName, "err", err)
	}
}
