// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/store"
)

// KeeperConfig is what a Keeper needs. Dir and Log are required.
//
// The callbacks are called by Run, or by the method that has to do with the key.
// Those for one key are called one at a time and in order; those for different keys
// at the same time. Their context ends after half a minute, and when the key is
// wanted by a method, which waits for them: OnChange, OnLost, Releasable and
// SendRelease must not call methods that change their own key.
type KeeperConfig struct {
	// Dir is the directory of the records, one small file each. It is the Keeper's
	// alone.
	Dir string
	// Root is where the root directory is that the paths of network namespaces start
	// from: see InRoot. The records don't depend on it.
	Root string
	// OnChange tells of a lease that takes the place of old in use, in whatever way
	// it differs, be it only its times; old is the zero Lease if there is none. After
	// an error, or a crash, it is called again, then with the newest lease.
	OnChange func(ctx context.Context, key string, old, now Lease) error
	// OnLost tells of a lease whose address must no longer be used: it has expired or
	// was refused. The Keeper goes on trying to get one. After an error, or a crash,
	// it is called again, unless there is a new lease by then, which is an OnChange.
	OnLost func(ctx context.Context, key string, lease Lease) error
	// OnGone tells, once in the life of a Keeper, that the interface of a lease is
	// gone, or its network namespace, or that another has its path. The lease has no
	// address if there is none at present. It may Release or Forget the key. What is left
	// alone is forgotten when it expires. nil stands for Release.
	OnGone func(ctx context.Context, key string, lease Lease)
	// Releasable is asked before a RELEASE. If it says no, because a successor that
	// the Keeper doesn't know of holds the lease, the lease is forgotten without one;
	// after an error it is asked again later. nil stands for yes.
	Releasable func(ctx context.Context, key string, lease Lease) (bool, error)
	// SendRelease sends a RELEASE that can't be sent from the client's interface, or was
	// sent without a sign that it has left. Its error is ErrNoOtherWay if there is no
	// other way, which nil stands for, too.
	SendRelease func(ctx context.Context, key string, lease Lease) error
	// Exchanges is how many clients may be talking to servers for Run at a time, and
	// how many callbacks may be running; 0 stands for 16.
	Exchanges int
	Log       *slog.Logger
}

// Client is who gets a lease, and where.
type Client struct {
	// Netns is the path of the network namespace below the Keeper's Root; empty for the
	// process's own.
	Netns string
	// IfName is the name of the interface.
	IfName string
	// Config is the client. HardwareAddr has to be the interface's. Selected is told
	// of the offers of the Acquire that it is given to; Denied is the Keeper's.
	Config Config
	// Link is that interface, if the caller has opened it by Netns and IfName: it serves an
	// Acquire or a Discover until that returns, and is the caller's to close. nil has the
	// Keeper open the interface when there is need.
	Link *Link
	// Data is what the caller wants to know of the client later: see Keeper.Data. It is
	// part of the record. Optional.
	Data json.RawMessage
}

// checkLink returns an error if the Link is not the client's interface.
func (c Client) checkLink() error {
	switch l := c.Link; {
	case l == nil:
	case l.name != c.IfName:
		return fmt.Errorf("DHCP client for %s has a Link of %s", c.IfName, l.name)
	case (l.space == "") != (c.Netns == ""):
		return fmt.Errorf("DHCP client for %s in netns %q has a Link of another one", c.IfName, c.Netns)
	case !bytes.Equal(l.hw, c.Config.HardwareAddr):
		return fmt.Errorf("DHCP client for %s has hardware address %s, and a Link of %s", c.IfName, c.Config.HardwareAddr, l.hw)
	}
	return nil
}

var (
	// ErrPending tells that a lease is still to be given back.
	ErrPending = errors.New("lease can't be given back yet")
	// ErrNoOtherWay tells that a RELEASE can only be sent from the client's interface.
	ErrNoOtherWay = errors.New("the network can't be reached without the interface")
)

var (
	errInterrupted = errors.New("interrupted by a newer call for the same key")
	errEnded       = errors.New("keeper has ended")
)

// Keeper keeps leases: it prolongs them in time, gets new ones for those that are
// lost, and gives them back, by the client state machine of RFC 2131, 4.4. Each has a
// key of the caller's choice. A lease that nothing is to be done for is a record and
// a timer: no goroutine, thread or file descriptor.
//
// What a record says is in its file before it is relied on, so that a new Keeper on the
// same directory goes on where the former one was cut off, be it by kill -9, and sends
// nothing before it is time. That the disk has it too, for a power failure, comes about
// a second later: an Acquire doesn't wait for the disk, since no network namespace, so no
// pod, outlives a power failure, and what a record is good for after one is to give the
// lease back before its time ends. All methods may be called concurrently, before Run too; calls that
// change the same key are worked on one at a time.
type Keeper struct {
	cfg     KeeperConfig
	lock    *os.File // of Dir
	records *store.Store[record]
	ground  ground

	mu      sync.Mutex
	entries map[string]*entry
	queues  map[bool]*queue // by action.speaks
	ended   bool
	// working counts claims, and links being closed.
	working sync.WaitGroup
	// wake has Run look at the queues again.
	wake chan struct{}
}

// NewKeeper reads the records in a directory, which is made if need be. A record that
// can't be read is set aside and logged, and stops no other. The directory is locked
// until Run ends: there is no second Keeper on it.
func NewKeeper(cfg KeeperConfig) (*Keeper, error) {
	ground, err := newKernel(cfg.Root)
	if err != nil {
		return nil, err
	}
	return newKeeper(cfg, ground)
}

func newKeeper(cfg KeeperConfig, ground ground) (*Keeper, error) {
	if cfg.Dir == "" || cfg.Log == nil || cfg.Exchanges < 0 {
		return nil, errors.New("keeper of DHCP leases: Dir and Log are required, and Exchanges can't be negative")
	}
	if cfg.Exchanges == 0 {
		cfg.Exchanges = 16
	}
	if _, err := InRoot(cfg.Root, "/proc"); err != nil {
		return nil, fmt.Errorf("keeper of DHCP leases: %w", err)
	}
	lock, err := store.Lock(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("keeper of DHCP leases: %w", err)
	}
	k := &Keeper{
		cfg: cfg, lock: lock, ground: ground,
		entries: map[string]*entry{},
		queues:  map[bool]*queue{true: {free: cfg.Exchanges}, false: {free: cfg.Exchanges}},
		wake:    make(chan struct{}, 1),
	}
	if err := k.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("keeper of DHCP leases: %w", err), lock.Close())
	}
	return k, nil
}

// load reads the records, and queues them for what is next.
func (k *Keeper) load() (err error) {
	if k.records, err = store.OpenDeferred[record](k.cfg.Dir, k.cfg.Log); err != nil {
		return err
	}
	for key, r := range k.records.All() {
		if err := k.rebooted(key, r); err != nil {
			return err
		}
		e := k.entry(key)
		e.progress.spread = rand.Float64()
		k.enqueue(e)
	}
	return nil
}

// rebooted begins anew with a lease of this process's own namespace if the machine was
// started since: nothing is configured any more, and the machine may be elsewhere, so
// that the lease has to be confirmed first (INIT-REBOOT).
func (k *Keeper) rebooted(key string, r record) error {
	place, err := k.ground.identify("", nil)
	if err != nil || r.Client.Netns != "" || r.Client.Place == place || r.State == releasing || r.State == held {
		return err
	}
	r.Client.Place, r.State, r.Told = place, lost, nil
	return k.records.Put(key, r)
}

// Acquire gets a lease for a client and keeps it from then on. A client that has one,
// on the same interface, gets that. One that may still have one asks for it to be
// confirmed (INIT-REBOOT), and one whose lease has expired asks for the same address.
//
// After an error that a call of Release doesn't follow, a lease that the server may
// have granted is forgotten when it expires. The error is as that of the function
// Acquire; a Release, Forget or Move of the key ends the Acquire.
func (k *Keeper) Acquire(ctx context.Context, key string, c Client) (Lease, error) {
	return k.get(ctx, key, c, bound)
}

// Discover gets a lease for a client whose lease it is not the Keeper's to keep, since
// somebody else, as the guest of a virtual machine, goes on as the same client. The
// lease is not prolonged, and there are no callbacks for it; Lease doesn't return it,
// nor does a repeated Discover without asking a server. Until it expires, Release gives
// it back, and Forget leaves it to the client. Otherwise Discover is as Acquire.
func (k *Keeper) Discover(ctx context.Context, key string, c Client) (Lease, error) {
	return k.get(ctx, key, c, held)
}

// get gets a lease that is then in a state.
func (k *Keeper) get(ctx context.Context, key string, c Client, then state) (Lease, error) {
	if err := c.Config.Check(); err != nil {
		return Lease{}, fmt.Errorf("checking DHCP client for %s: %w", c.IfName, err)
	}
	if err := c.checkLink(); err != nil {
		return Lease{}, err
	}
	place, err := k.ground.identify(c.Netns, c.Link)
	if err != nil {
		return Lease{}, err
	}
	if lease, ok := k.live(key, c, place); ok {
		return lease, nil
	}
	claim, err := k.claim(ctx, key, acquiring)
	if err != nil {
		return Lease{}, err
	}
	defer claim.giveUp()
	if lease, ok := k.live(key, c, place); ok {
		return lease, nil // of an Acquire that this one waited for
	}
	lease, err := k.acquire(claim, c, place, then)
	if err != nil && context.Cause(claim.ctx) == errInterrupted {
		err = fmt.Errorf("%w: %w", errInterrupted, err)
	}
	return lease, err
}

func (k *Keeper) acquire(claim *claim, c Client, place string, then state) (Lease, error) {
	old, _ := k.records.Get(claim.key)
	r := record{State: held, Client: newIdentity(c, place), Lease: old.unended(time.Now())}
	if old.Client.at(c.Netns, place, c.IfName) && (old.State == bound || old.State == lost) {
		// It has lost its lease, and goes on looking for one if this comes to nothing.
		r.State, r.Told = lost, old.Told
	}
	cfg := r.askingFor(c.Config, old.Lease)
	cfg.Selected = func(offer Lease) error {
		if c.Config.Selected != nil {
			if err := c.Config.Selected(offer); err != nil {
				return err
			}
		}
		r.Lease = &offer
		return k.records.Put(claim.key, r)
	}
	cfg.Denied = func() error {
		if r.Lease = nil; r.State == held {
			return k.records.Delete(claim.key)
		}
		return k.records.Put(claim.key, r)
	}
	if r.Lease != nil {
		if err := k.records.Put(claim.key, r); err != nil {
			return Lease{}, err
		}
	}
	exchange := func(p port) (Lease, error) { return acquireOn(claim.ctx, p, c.IfName, cfg) }
	var lease Lease
	var err error
	if c.Link != nil {
		lease, err = exchange(c.Link)
	} else {
		lease, err = k.speak(claim, r, netip.Addr{}, exchange)
	}
	if err != nil {
		return Lease{}, err
	}
	r.State, r.Lease = then, &lease
	r.Told = r.usable()
	claim.entry.succeeded()
	return lease, k.records.Put(claim.key, r)
}

// askingFor returns the client that asks for the lease that it may still have, or
// else for the address of a former one.
func (r record) askingFor(cfg Config, former *Lease) Config {
	switch {
	case r.Lease != nil:
		cfg.former = r.Lease.Addr
	case former != nil:
		cfg.RequestedAddr = former.Addr.Addr()
	}
	return cfg
}

// live returns the lease that a client has on an interface.
func (k *Keeper) live(key string, c Client, place string) (Lease, bool) {
	r, ok := k.records.Get(key)
	if !ok || r.usable() == nil || r.Lease.expired(time.Now()) || !r.Client.at(c.Netns, place, c.IfName) {
		return Lease{}, false
	}
	return *r.Lease, true
}

// Lease returns the lease of a key that may be used now.
func (k *Keeper) Lease(key string) (Lease, bool) {
	r, ok := k.records.Get(key)
	if !ok || r.usable() == nil || r.Lease.expired(time.Now()) {
		return Lease{}, false
	}
	return *r.Lease, true
}

// Holds reports whether the Keeper has a record of a key that is not to be given back.
func (k *Keeper) Holds(key string) bool {
	r, ok := k.records.Get(key)
	return ok && r.State != releasing
}

// Data returns the Data of the client that a key was given to, in whatever state its
// lease is; nil if there is none.
func (k *Keeper) Data(key string) json.RawMessage {
	r, _ := k.records.Get(key)
	return r.Client.Data
}

// Keys returns the keys that the Keeper has a record of, in no order. Those in pending
// are to be given back.
func (k *Keeper) Keys() (kept, pending []string) {
	for key, r := range k.records.All() {
		if r.State == releasing {
			pending = append(pending, key)
		} else {
			kept = append(kept, key)
		}
	}
	return kept, pending
}

// Forget drops a key without a RELEASE: somebody else has the lease now.
func (k *Keeper) Forget(ctx context.Context, key string) error {
	claim, err := k.claim(ctx, key, ending)
	if err != nil {
		return err
	}
	defer claim.giveUp()
	return k.records.Delete(key)
}

// Move hands what a key holds, if anything, to another key: a newer sandbox of the same
// client. Nothing is sent. The lease is not in use until an Acquire of the new key,
// which has the server confirm it; until then it is not prolonged.
func (k *Keeper) Move(ctx context.Context, from, to string) error {
	source, err := k.claim(ctx, from, ending)
	if err != nil {
		return err
	}
	defer source.giveUp()
	r, ok := k.records.Get(from)
	if !ok {
		return nil
	}
	if r.unended(time.Now()) != nil {
		target, err := k.claim(ctx, to, ending)
		if err != nil {
			return err
		}
		defer target.giveUp()
		r.State, r.Told = held, nil
		if err := k.records.Put(to, r); err != nil {
			return err
		}
	}
	return k.records.Delete(from)
}

// Release gives a lease back, and forgets it. If that can't be done now, the error is
// ErrPending, and Run goes on trying until the lease expires. A key without a lease is
// no error. An Acquire or a callback of the key under way ends first.
func (k *Keeper) Release(ctx context.Context, key string) error {
	claim, err := k.claim(ctx, key, ending)
	if err != nil {
		return err
	}
	defer claim.giveUp()
	r, ok := k.records.Get(key)
	if !ok {
		return nil
	}
	if r.unended(time.Now()) == nil {
		return k.records.Delete(key)
	}
	r.State, r.Told = releasing, nil
	unmarked := k.records.Put(key, r)
	// If that has failed, because the disk is full, say: all the more reason to go on.
	if err := k.giveBack(claim, r); err != nil {
		if unmarked != nil {
			return errors.Join(unmarked, err)
		}
		return fmt.Errorf("%w: %w", ErrPending, err)
	}
	return nil
}
