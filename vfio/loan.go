// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// loan is the right to work on one device, for as long as one hand-off lasts.
type loan struct {
	*Handoffs
	pci     string
	turn    chan struct{}
	keepMAC bool
	// pending is closed when a call that exceeded its time has returned from the
	// kernel; nil if there is none.
	pending <-chan struct{}
}

// errPending tells that the kernel still is at an earlier change.
var errPending = errors.New("the kernel still is at a change of its driver; the device is given back after that")

// begin waits for a device's turn.
func (h *Handoffs) begin(ctx context.Context, pci string) (*loan, error) {
	l, err := h.newLoan(pci)
	if err != nil {
		return nil, err
	}
	select {
	case l.turn <- struct{}{}:
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for its hand-off to end: %w", context.Cause(ctx))
	}
}

// tryBegin returns nil if a device is on loan at the moment.
func (h *Handoffs) tryBegin(pci string) (*loan, error) {
	l, err := h.newLoan(pci)
	if err != nil {
		return nil, err
	}
	select {
	case l.turn <- struct{}{}:
		return l, nil
	default:
		return nil, nil
	}
}

func (h *Handoffs) newLoan(pci string) (*loan, error) {
	if err := checkAddress(pci); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	turn := h.onLoan[pci]
	if turn == nil {
		turn = make(chan struct{}, 1)
		h.onLoan[pci] = turn
	}
	return &loan{Handoffs: h, pci: pci, turn: turn}, nil
}

// end passes the device's turn on: at once, or when the kernel is done with it
// and the device is back.
func (l *loan) end() {
	if l.pending == nil {
		<-l.turn
		return
	}
	go func() {
		defer func() { <-l.turn }()
		for l.pending != nil {
			<-l.pending
			l.pending, l.keepMAC = nil, false
			if err := l.giveBack(); err != nil {
				l.cfg.Log.Error("PCI device is not given back", "pci", l.pci, "err", err)
			} else {
				l.cfg.Log.Info("PCI device is given back at last", "pci", l.pci)
			}
		}
	}()
}

// check tells what a loan of the device is to be, after all checks that can be
// made without any effect on it.
func (l *loan) check(mac net.HardwareAddr) (record, error) {
	d, err := l.atHand()
	if err != nil {
		return record{}, err
	}
	driver, err := l.nicDriver(d)
	if err != nil {
		return record{}, err
	}
	former, err := l.cfg.Netlink.VFMAC(d.PFNetdev, d.VFIndex)
	if err != nil {
		return record{}, err
	}
	return record{Driver: driver, MAC: mac.String(), FormerMAC: former.String()}, nil
}

// atHand is a device that can be borrowed, as far as the NIC driver doesn't matter.
func (l *loan) atHand() (Device, error) {
	d, err := l.device(l.pci)
	if err == nil {
		err = checkBorrowable(d)
	}
	if err == nil {
		err = l.checkUnused(d)
	}
	return d, err
}

// checkBorrowable tells why a device is none that can be borrowed.
func checkBorrowable(d Device) error {
	if err := checkVF(d); err != nil {
		return err
	}
	switch {
	case d.IOMMUGroup == "":
		return errors.New("it has no IOMMU group")
	case d.Driver == "":
		return fmt.Errorf("it has no driver, not %s", DriverVFIO)
	case d.Driver != DriverVFIO:
		return fmt.Errorf("its driver is %s, not %s", d.Driver, DriverVFIO)
	}
	return nil
}

func checkMAC(mac net.HardwareAddr) error {
	if len(mac) != 6 || mac[0]&1 != 0 || mac.String() == "00:00:00:00:00:00" {
		return fmt.Errorf("%q is not the MAC address of one station", mac)
	}
	return nil
}

// take records the loan, binds the NIC driver and returns the name of the
// interface, which is up.
func (l *loan) take(ctx context.Context, r record) (netdev string, err error) {
	if err := l.step(stepOpen, func() error { return l.journal.Put(l.pci, r) }); err != nil {
		return "", err
	}
	err = l.run(r, func(s state) (step, error) {
		if err := context.Cause(ctx); err != nil {
			return done, err
		}
		return nextToTake(s, r)
	})
	if err != nil {
		return "", err
	}
	err = l.step(stepNetdev, func() (err error) {
		netdev, err = l.bringUp(ctx, r)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", stepNetdev, err)
	}
	return netdev, nil
}

// giveBack returns the device to vfio-pci and closes its record; without a
// record there is nothing to do. It does so whatever the caller's context says;
// each change has its own time.
func (l *loan) giveBack() error {
	r, ok := l.journal.Get(l.pci)
	if !ok {
		return nil
	}
	if err := l.run(r, func(s state) (step, error) { return nextToReturn(s, r) }); err != nil {
		return err
	}
	// A driver may refuse the former address. That is told, but does not leave
	// the hand-off open for ever: the device itself is back.
	var err error
	if !l.keepMAC {
		err = l.resetMAC(r)
	}
	return errors.Join(err, l.step(stepClose, func() error { return l.journal.Delete(l.pci) }))
}

// resetMAC sets the VF's former MAC address back, if it has the hand-off's.
func (l *loan) resetMAC(r record) error {
	s, d, err := l.look()
	if err != nil || s.MAC != r.MAC || r.FormerMAC == r.MAC {
		return err
	}
	return l.do(stepResetMAC, d, r)
}

// run does what decide says until there is nothing to do any more. A step after
// which the same one is still to do had no effect: the kernel reports success
// for a probe that failed.
func (l *loan) run(r record, decide func(state) (step, error)) error {
	for last := done; ; {
		s, d, err := l.look()
		if err != nil {
			return err
		}
		next, err := decide(s)
		if err != nil || next == done {
			return err
		}
		if next == last {
			return fmt.Errorf("%s: it had no effect; the kernel's log may tell why", next)
		}
		if err := l.do(next, d, r); err != nil {
			return err
		}
		last = next
	}
}

// look reads the state of the device. The kernel takes the device's lock for
// driver_override, which another change of its driver may hold.
func (l *loan) look() (state, Device, error) {
	type seen struct {
		state
		Device
	}
	now, err := within(l, l.cfg.BindTimeout, func() (seen, error) {
		s, d, err := l.observe()
		return seen{s, d}, err
	})
	return now.state, now.Device, err
}

// observe asks no more for a state than the way home needs: the device has to
// get there even when its MAC address can't be seen.
func (l *loan) observe() (s state, d Device, err error) {
	override, err := l.override(l.pci)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(l.devicePath("")) // without sysfs no device is to be seen
		return s, d, err
	}
	s.Present, s.Override = true, override
	if err := errors.Join(err, readLink(filepath.Join(l.devicePath(l.pci), "driver"), &s.Driver)); err != nil {
		return s, d, err
	}
	if d, err = l.device(l.pci); err == nil && d.PFNetdev != "" {
		if mac, err := l.cfg.Netlink.VFMAC(d.PFNetdev, d.VFIndex); err == nil {
			s.MAC = mac.String()
		}
	}
	return s, d, nil
}

// do does one step on the device.
func (l *loan) do(s step, d Device, r record) error {
	timeout := l.cfg.BindTimeout
	if s == stepRelease || s == stepUnbind {
		timeout = l.cfg.UnbindTimeout
	}
	err := l.step(s, func() error {
		_, err := within(l, timeout, func() (struct{}, error) { return struct{}{}, l.change(s, d, r) })
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

func (l *loan) change(s step, d Device, r record) error {
	override := filepath.Join(l.devicePath(l.pci), "driver_override")
	unbind := func(driver string) error { return l.write(filepath.Join(l.driverPath(driver), "unbind"), l.pci) }
	switch s {
	case stepSetMAC:
		return l.setMAC(d, r.MAC)
	case stepResetMAC:
		return l.setMAC(d, r.FormerMAC)
	case stepRelease:
		return unbind(DriverVFIO)
	case stepUnbind:
		return unbind(r.Driver)
	case stepOverride:
		return l.write(override, r.Driver+"\n")
	case stepPin:
		return l.write(override, DriverVFIO+"\n")
	case stepBind, stepReturn:
		return l.write(filepath.Join(l.cfg.Sysfs, "bus/pci/drivers_probe"), l.pci)
	}
	return errors.New("no such step")
}

func (l *loan) setMAC(d Device, mac string) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	return l.cfg.Netlink.SetVFMAC(d.PFNetdev, d.VFIndex, hw)
}

// bringUp waits for the interface that the NIC driver makes and sets it up.
// udev may rename it at any time; what counts is the name that stayed.
func (l *loan) bringUp(ctx context.Context, r record) (netdev string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.BindTimeout, fmt.Errorf("not up within %v", l.cfg.BindTimeout))
	defer cancel()
	for {
		var d Device
		look := func() (err error) {
			if d, err = l.device(l.pci); err == nil && d.Netdev == "" {
				err = fmt.Errorf("driver %s has made no interface", r.Driver)
			}
			return err
		}
		if err := poll(ctx, look); err != nil {
			return "", err
		}
		if d.Netdev == netdev {
			return netdev, err
		}
		netdev, err = d.Netdev, l.setUp(ctx, d, r)
	}
}

func (l *loan) setUp(ctx context.Context, d Device, r record) error {
	var mac string
	if err := readFile(filepath.Join(l.devicePath(l.pci), "net", d.Netdev, "address"), &mac); err != nil {
		return err
	}
	if mac != r.MAC {
		return fmt.Errorf("interface %s has MAC address %s, not %s as set through %s", d.Netdev, mac, r.MAC, d.PFNetdev)
	}
	if err := l.isolate(d.Netdev); err != nil {
		return err
	}
	return l.cfg.Netlink.SetUp(ctx, d.Netdev)
}

// isolate keeps IPv6 of the host off an interface: a network of virtual machines
// could give the host an address and routes.
func (l *loan) isolate(netdev string) error {
	err := l.write(filepath.Join(l.cfg.Proc, "sys/net/ipv6/conf", netdev, "disable_ipv6"), "1")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// within makes a call that the kernel may not return from in time. A call that
// exceeds its time goes on as l.pending, and no other is made before it ends.
func within[T any](l *loan, timeout time.Duration, call func() (T, error)) (T, error) {
	var none T
	if l.pending != nil {
		return none, errPending
	}
	type result struct {
		value T
		err   error
	}
	ended, results := make(chan struct{}), make(chan result, 1)
	go func() {
		defer close(ended)
		value, err := call()
		results <- result{value, err}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-results:
		return r.value, r.err
	case <-timer.C:
		l.pending = ended
		return none, fmt.Errorf("not done after %v: %w", timeout, errPending)
	}
}
