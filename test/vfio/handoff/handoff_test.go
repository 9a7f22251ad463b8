// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

package handoff

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/vfio/card"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// TestHandoff gets a lease on the interface of each device, one of them twice.
func TestHandoff(t *testing.T) {
	n := newNetwork(t)
	for _, index := range []int{0, 1, 0} {
		n.handoff(t, newDevice(t, index), newHandoffs(t, vfio.Config{}))
	}
}

// handoff gets a lease on a device's interface, and has it open through VFIO
// before and after.
func (n *network) handoff(t *testing.T, d *device, h *handoffs) {
	t.Helper()
	d.mustOpen()
	var lease dhcp.Lease
	var netdev string
	var took time.Duration
	began := time.Now()
	err := h.Borrow(t.Context(), d.pci, d.mac, func(ctx context.Context, name string) (err error) {
		start := time.Now()
		defer func() { took = time.Since(start) }()
		netdev = name
		lease, err = acquire(ctx, name, d)
		return err
	})
	all := time.Since(began)
	if err != nil {
		t.Fatalf("%v; server's log:\n%s", err, n.log())
	}
	t.Logf("hand-off of %s, as %s: %v, of which %v for the lease of %v", d.pci, netdev, all.Round(time.Millisecond), took.Round(time.Millisecond), lease.Addr)
	if !n.leased(d.mac, lease.Addr.Addr()) {
		t.Errorf("the server has no lease of %v for %v", lease.Addr.Addr(), d.mac)
	}
	if mac := d.assigned(); !bytes.Equal(mac, d.mac) {
		t.Errorf("%s has the MAC address %v, not %v", d.pci, mac, d.mac)
	}
	d.mustBeBack(h)
	d.mustOpen()
}

func acquire(ctx context.Context, netdev string, d *device) (dhcp.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	link, err := dhcp.OpenLink("", netdev)
	if err != nil {
		return dhcp.Lease{}, err
	}
	lease, err := dhcp.Acquire(ctx, link, dhcp.Config{HardwareAddr: d.mac})
	return lease, errors.Join(err, link.Close())
}

// TestOpenedMeanwhile opens the device after it was found unused: the kernel
// doesn't take it from vfio-pci until it is closed, and then it is given back.
func TestOpenedMeanwhile(t *testing.T) {
	d := newDevice(t, 0)
	var use *card.Use
	h := newHandoffs(t, vfio.Config{
		UnbindTimeout: time.Second,
		Step: func(moment string) (err error) {
			if moment == "before unbind vfio-pci" && use == nil {
				use, err = card.Open(d.pci)
			}
			return err
		},
	})
	err := h.Borrow(t.Context(), d.pci, d.mac, unused(t))
	wantError(t, err, "unbind vfio-pci")
	if use == nil {
		t.Fatal("the device was not opened")
	}
	if err := use.Close(); err != nil {
		t.Fatal(err)
	}
	// Its turn comes when the device is back.
	if err := h.Borrow(t.Context(), d.pci, d.mac, func(context.Context, string) error { return nil }); err != nil {
		t.Error(err)
	}
	d.mustBeBack(h)
	d.mustOpen()
}
