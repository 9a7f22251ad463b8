// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

// Package handoff tests package vfio on a real device, with the real kernel.
package handoff

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/vfio/card"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// A device is a virtual function that belongs to vfio-pci.
type device struct {
	t     *testing.T
	pci   string
	index int
	// mac is what a hand-off gives it, former what it has before.
	mac, former net.HardwareAddr
}

// newDevice is a virtual function, counted from 0, as it is before a hand-off;
// however the test leaves it.
func newDevice(t *testing.T, index int) *device {
	t.Helper()
	vfs, err := card.VFs()
	if err != nil {
		t.Fatal(err)
	}
	d := &device{
		t: t, pci: vfs[index], index: index,
		mac:    net.HardwareAddr{0x52, 0x54, 0, 0xcc, 0, byte(index)},
		former: net.HardwareAddr{0x52, 0x54, 0, 0xdd, 0, byte(index)},
	}
	d.bind("vfio-pci")
	if err := netlink.LinkSetVfHardwareAddr(pf(t), index, d.former); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *device) bind(driver string) {
	d.t.Helper()
	if err := card.Bind(d.pci, driver); err != nil {
		d.t.Fatal(err)
	}
}

func pf(t *testing.T) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(card.PF)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// assigned is the MAC address that the device has through its physical function.
func (d *device) assigned() net.HardwareAddr {
	d.t.Helper()
	return pf(d.t).Attrs().Vfs[d.index].Mac
}

// status is all of a device that a hand-off changes.
func (d *device) status() string {
	d.t.Helper()
	override, err := card.Override(d.pci)
	if err != nil {
		d.t.Fatal(err)
	}
	return "driver " + card.Driver(d.pci) + ", override " + override + ", MAC address " + d.assigned().String()
}

// mustBeBack checks that the device is vfio-pci's, for good, and that no
// hand-off is open.
func (d *device) mustBeBack(h *handoffs) {
	d.t.Helper()
	if status := d.status(); !strings.HasPrefix(status, "driver vfio-pci, override vfio-pci,") {
		d.t.Errorf("%s has %s", d.pci, status)
	}
	h.mustBeEmpty(d.t)
}

// mustBeAsBefore is mustBeBack for a hand-off that has failed.
func (d *device) mustBeAsBefore(h *handoffs) {
	d.t.Helper()
	d.mustBeBack(h)
	if mac := d.assigned(); !bytes.Equal(mac, d.former) {
		d.t.Errorf("%s has the MAC address %v, not %v as before", d.pci, mac, d.former)
	}
}

// mustOpen opens the device through VFIO, as its virtual machine does, and
// closes it.
func (d *device) mustOpen() {
	d.t.Helper()
	use, err := card.Open(d.pci)
	if err == nil {
		err = use.Close()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// keepOpen has the device open until the test ends.
func (d *device) keepOpen() {
	d.t.Helper()
	use, err := card.Open(d.pci)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := use.Close(); err != nil {
			d.t.Error(err)
		}
	})
}

// pretend has a file of the device's folder in sysfs say something else, until
// the test ends. The device remains what it is.
func (d *device) pretend(file, text string) {
	d.t.Helper()
	source := filepath.Join(d.t.TempDir(), file)
	if err := os.WriteFile(source, []byte(text+"\n"), 0o644); err != nil {
		d.t.Fatal(err)
	}
	target := filepath.Join("/sys/bus/pci/devices", d.pci, file)
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		d.t.Fatalf("mount over %s: %v", target, err)
	}
	d.t.Cleanup(func() {
		if err := unix.Unmount(target, 0); err != nil {
			d.t.Error(err)
		}
	})
}

// handoffs are what is tested, with their journal.
type handoffs struct {
	*vfio.Handoffs
	journal string
}

// newHandoffs makes a journal, unless cfg names one.
func newHandoffs(t *testing.T, cfg vfio.Config) *handoffs {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	h, err := vfio.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &handoffs{h, cfg.Dir}
}

func (h *handoffs) mustBeEmpty(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(h.journal)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("the journal has %s", f.Name())
	}
}

// unused is for hand-offs that fail before there is an interface.
func unused(t *testing.T) func(context.Context, string) error {
	return func(context.Context, string) error {
		t.Error("there was an interface to use")
		return nil
	}
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, not one with %q", err, text)
	}
}

func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}
