// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package vfio borrows the network interface of a virtual function for a moment
// and always gives the device back. The device belongs to vfio-pci, for a
// virtual machine; on loan it is bound to its NIC driver.
//
// What there is to do follows from what sysfs says of the device, not from
// remembered progress (see step.go). So a hand-off that was cut off at any
// moment is undone by the same few steps that end every other one. All that has
// to be on disk for this is one record, from before the first step until after
// the last, of which device is on loan.
package vfio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/store"
)

// DriverVFIO is the driver that a device belongs to before and after a hand-off.
const DriverVFIO = "vfio-pci"

// Time for one change of driver, where Config says nothing.
const defaultTimeout = 10 * time.Second

// Config is what Handoffs need. Dir and Log are required.
type Config struct {
	// Sysfs and Proc are where these filesystems are; "/sys" and "/proc" if
	// empty. Sysfs shows the interfaces of the network namespace in which it was
	// mounted: it must be the one of the daemon. Proc must show the processes of
	// the whole node, and be writable: where it doesn't, a device that is in use is
	// not seen to be, and none is handed over.
	Sysfs, Proc string
	// Modules is the folder with the running kernel's modules.alias;
	// "/lib/modules/RELEASE" if empty.
	Modules string
	// Dir is the journal: one record for each hand-off that is not over. Its
	// user is one Handoffs at a time.
	Dir string
	// Netlink does what is done by netlink; nil for the kernel's.
	Netlink Netlink
	// UnbindTimeout and BindTimeout are the time that a driver has to let go of
	// a device, and to take it and bring its interface up; 10 s each if 0.
	UnbindTimeout, BindTimeout time.Duration
	// Step, unless nil, is called right before and after each step, with "before
	// STEP" and "after STEP" (see Steps); an error of it fails the step. It is
	// for tests of what a crash leaves behind.
	Step func(moment string) error
	Log  *slog.Logger
}

// Handoffs are the loans of a node's devices. They are safe for concurrent use.
type Handoffs struct {
	cfg     Config
	journal *store.Store[record]
	write   func(path, value string) error

	mu     sync.Mutex
	onLoan map[string]chan struct{} // by PCI address; holds one element while the device is worked on
}

// New reads the journal, whose folder it makes if need be. Hand-offs that were
// cut off stay as they are until Recover or the next Borrow of their device.
func New(cfg Config) (*Handoffs, error) {
	if cfg.Dir == "" || cfg.Log == nil {
		return nil, errors.New("VFIO hand-off: Dir and Log must be set")
	}
	if cfg.UnbindTimeout < 0 || cfg.BindTimeout < 0 {
		return nil, fmt.Errorf("VFIO hand-off: UnbindTimeout %v and BindTimeout %v can't be negative", cfg.UnbindTimeout, cfg.BindTimeout)
	}
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("VFIO hand-off: %w", err)
	}
	journal, err := store.Open[record](cfg.Dir, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("VFIO hand-off: %w", err)
	}
	return &Handoffs{cfg: cfg, journal: journal, write: writeFile, onLoan: map[string]chan struct{}{}}, nil
}

// complete fills in what stands for an empty field.
func (c *Config) complete() error {
	if c.Sysfs == "" {
		c.Sysfs = "/sys"
	}
	if c.Proc == "" {
		c.Proc = "/proc"
	}
	if c.UnbindTimeout == 0 {
		c.UnbindTimeout = defaultTimeout
	}
	if c.BindTimeout == 0 {
		c.BindTimeout = defaultTimeout
	}
	if c.Netlink == nil {
		c.Netlink = Kernel{}
	}
	if c.Modules == "" {
		release, err := kernelRelease()
		if err != nil {
			return err
		}
		c.Modules = "/lib/modules/" + release
	}
	return nil
}

// Borrow takes a virtual function from vfio-pci, binds the NIC driver that fits,
// brings its interface up, in the daemon's network namespace and without any
// address or answer of the host's own on it, and calls use with the interface's
// name. Then it gives the device back to vfio-pci and pins it there by
// driver_override, always: also when ctx has ended, or when use fails or panics.
//
// The device's MAC address is set through its physical function before anything
// else. It stays when Borrow succeeds, so that the guest has it, and is set back
// when Borrow fails. There is one hand-off of a device at a time; Borrow waits
// for its turn until ctx ends.
//
// The error is use's, if that failed, joined with what went wrong in giving the
// device back. What is wrong with the device itself is told before anything has
// been touched: a device that is not a virtual function of a present physical
// one, has no IOMMU group, is not bound to vfio-pci, is open in some process, or
// whose NIC driver is not known or not loaded.
//
// An unbind doesn't end while some process has the device open, and can't be
// called back. One that exceeds UnbindTimeout goes on in the kernel: Borrow then
// fails, and the hand-off stays open, in the journal and for other calls of
// Borrow, until the kernel is done; then the device is given back. This is the
// only work that outlives its call. Until it ends, the process can't end either,
// not even by SIGKILL, and keeps its files and their locks.
func (h *Handoffs) Borrow(ctx context.Context, pci string, mac net.HardwareAddr, use func(ctx context.Context, netdev string) error) (err error) {
	if err := checkMAC(mac); err != nil {
		return fmt.Errorf("borrow PCI device %q: %w", pci, err)
	}
	l, err := h.begin(ctx, pci)
	if err != nil {
		return fmt.Errorf("borrow PCI device %q: %w", pci, err)
	}
	defer l.end()
	if err := l.giveBack(); err != nil {
		return fmt.Errorf("PCI device %q: undo an earlier hand-off: %w", pci, err)
	}
	r, err := l.check(mac)
	if err != nil {
		return fmt.Errorf("borrow PCI device %q: %w", pci, err)
	}
	defer func() {
		if l.pending != nil {
			return // and told; end gives it back
		}
		if back := l.giveBack(); back != nil {
			err = errors.Join(err, fmt.Errorf("give PCI device %q back to %s: %w", pci, DriverVFIO, back))
		}
	}()
	netdev, err := l.take(ctx, r)
	if err != nil {
		return fmt.Errorf("borrow PCI device %q: %w", pci, err)
	}
	err = h.step(stepUse, func() error { return use(ctx, netdev) })
	l.keepMAC = err == nil
	return err
}

// Assign leaves a device as a Borrow that succeeds does, without borrowing it: it has
// the MAC address and is pinned to vfio-pci. What is wrong with the device is told
// before anything has been touched, as by Borrow; the NIC driver doesn't matter.
func (h *Handoffs) Assign(ctx context.Context, pci string, mac net.HardwareAddr) error {
	err := checkMAC(mac)
	if err == nil {
		err = h.assign(ctx, pci, mac)
	}
	if err != nil {
		return fmt.Errorf("assign PCI device %q: %w", pci, err)
	}
	return nil
}

func (h *Handoffs) assign(ctx context.Context, pci string, mac net.HardwareAddr) error {
	l, err := h.begin(ctx, pci)
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.giveBack(); err != nil {
		return fmt.Errorf("undo an earlier hand-off: %w", err)
	}
	d, err := l.atHand()
	if err == nil {
		err = l.do(stepSetMAC, d, record{MAC: mac.String()})
	}
	if err == nil {
		err = l.do(stepPin, d, record{})
	}
	return err
}

// Recover undoes every hand-off that was cut off: it gives the devices back to
// vfio-pci, pinned, and with the MAC address of before. It is called at the
// daemon's start, and may be called at any time; devices on loan at that moment
// are left to their Borrow. An error stops no other device, and the hand-off
// stays in the journal for the next call. A device that doesn't exist any more
// has nothing to be given back.
func (h *Handoffs) Recover(ctx context.Context) error {
	var errs []error
	for pci := range h.journal.All() {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		l, err := h.tryBegin(pci)
		if err == nil && l != nil {
			err = l.giveBack()
			l.end()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("PCI device %q: undo a hand-off that was cut off: %w", pci, err))
		}
	}
	return errors.Join(errs...)
}

// step does one step of a hand-off.
func (h *Handoffs) step(s step, do func() error) error {
	if err := h.moment("before " + string(s)); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return h.moment("after " + string(s))
}

func (h *Handoffs) moment(m string) error {
	if h.cfg.Step == nil {
		return nil
	}
	return h.cfg.Step(m)
}
