// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

package handoff

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/vfio"
)

// TestFailed has hand-offs that fail after they have begun: the device is given
// back as it was.
func TestFailed(t *testing.T) {
	errUse := errors.New("no lease")
	for name, tt := range map[string]struct {
		driver string // that the kernel's modules name for the device; "" means its own
		use    func(context.Context, string) error
		want   string
	}{
		// It refuses virtual functions.
		"driver doesn't bind": {driver: "igb", want: "probe NIC driver"},
		// It takes any device, and makes no interface.
		"no interface": {driver: "pci-stub", want: "interface"},
		"use fails":    {use: func(context.Context, string) error { return errUse }, want: errUse.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t, 0)
			cfg := vfio.Config{BindTimeout: 3 * time.Second}
			if tt.driver != "" {
				cfg.Modules = d.driverByAlias(tt.driver)
			}
			use := tt.use
			if use == nil {
				use = unused(t)
			}
			h := newHandoffs(t, cfg)
			wantError(t, h.Borrow(t.Context(), d.pci, d.mac, use), tt.want)
			d.mustBeAsBefore(h)
			d.mustOpen()
		})
	}
}

// TestCancelled ends the caller's context at each step of a hand-off.
func TestCancelled(t *testing.T) {
	for _, step := range vfio.Steps() {
		t.Run(step, func(t *testing.T) {
			d := newDevice(t, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := newHandoffs(t, vfio.Config{Step: func(moment string) error {
				if moment == "before "+step {
					cancel()
				}
				return nil
			}})
			err := h.Borrow(ctx, d.pci, d.mac, func(ctx context.Context, _ string) error { return ctx.Err() })
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			d.mustBeBack(h)
			d.mustOpen()
		})
	}
}

// driverByAlias has the kernel's modules name a driver for the device, which
// pretends to be one that isn't known otherwise. It returns their folder.
func (d *device) driverByAlias(driver string) string {
	d.t.Helper()
	const modalias = "pci:v0000FFFFd00000001"
	d.pretend("vendor", "0xffff")
	d.pretend("device", "0x0001")
	d.pretend("modalias", modalias)
	folder := d.t.TempDir()
	alias := []byte("alias " + modalias + " " + driver + "\n")
	if err := os.WriteFile(filepath.Join(folder, "modules.alias"), alias, 0o644); err != nil {
		d.t.Fatal(err)
	}
	return folder
}
