// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

var borrowed = record{Driver: nic, MAC: vmMAC, FormerMAC: none}

func TestNextToTake(t *testing.T) {
	for name, c := range map[string]struct {
		state state
		want  step
		fails bool
	}{
		"gone":                  {state: state{}, fails: true},
		"at home":               {state: state{true, DriverVFIO, DriverVFIO, none}, want: stepSetMAC},
		"MAC is set":            {state: state{true, DriverVFIO, DriverVFIO, vmMAC}, want: stepRelease},
		"NIC's already":         {state: state{true, DriverVFIO, nic, vmMAC}, want: stepRelease},
		"no driver":             {state: state{true, "", DriverVFIO, vmMAC}, want: stepOverride},
		"no driver or override": {state: state{true, "", "", vmMAC}, want: stepOverride},
		"override is set":       {state: state{true, "", nic, vmMAC}, want: stepBind},
		"bound":                 {state: state{true, nic, nic, vmMAC}, want: done},
		"MAC taken off":         {state: state{true, nic, nic, none}, want: stepSetMAC},
		"somebody else's":       {state: state{true, "uio_pci_generic", nic, vmMAC}, fails: true},
	} {
		got, err := nextToTake(c.state, borrowed)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestNextToReturn(t *testing.T) {
	for name, c := range map[string]struct {
		state state
		want  step
		fails bool
	}{
		"gone":            {state: state{}, want: done},
		"bound":           {state: state{true, nic, nic, vmMAC}, want: stepPin},
		"override lost":   {state: state{true, nic, "", vmMAC}, want: stepPin},
		"pinned":          {state: state{true, nic, DriverVFIO, vmMAC}, want: stepUnbind},
		"no driver":       {state: state{true, "", nic, vmMAC}, want: stepPin},
		"none but pinned": {state: state{true, "", DriverVFIO, vmMAC}, want: stepReturn},
		"back, unpinned":  {state: state{true, DriverVFIO, "", vmMAC}, want: stepPin},
		"back":            {state: state{true, DriverVFIO, DriverVFIO, vmMAC}, want: done},
		"somebody else's": {state: state{true, "uio_pci_generic", "", vmMAC}, fails: true},
	} {
		got, err := nextToReturn(c.state, borrowed)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestEveryWayHome starts from each state that a device can be in, and lets
// somebody else's probe come at any point.
func TestEveryWayHome(t *testing.T) {
	for _, driver := range []string{"", nic, DriverVFIO} {
		for _, override := range []string{"", nic, DriverVFIO} {
			for probeAt := range 5 {
				s := state{Present: true, Driver: driver, Override: override, MAC: vmMAC}
				for n := 0; ; n++ {
					if n == probeAt {
						s = probed(s)
					}
					next, err := nextToReturn(s, borrowed)
					if err != nil || n > 5 {
						t.Fatalf("driver %q, override %q: lost after %d steps: %v", driver, override, n, err)
					}
					if next == done {
						break
					}
					switch next {
					case stepPin:
						s.Override = DriverVFIO
					case stepUnbind:
						s.Driver = ""
					case stepReturn:
						s = probed(s)
					}
				}
				if diff := cmp.Diff(state{true, DriverVFIO, DriverVFIO, vmMAC}, s); diff != "" {
					t.Errorf("driver %q, override %q (-want +got):\n%s", driver, override, diff)
				}
			}
		}
	}
}

func probed(s state) state {
	if s.Driver == "" {
		if s.Driver = s.Override; s.Driver == "" {
			s.Driver = nic
		}
	}
	return s
}
