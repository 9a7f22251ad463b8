// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package vfio

import (
	"errors"
	"fmt"
	"slices"
)

// record says that a device is on loan. It is on disk from before the first step
// until after the last.
type record struct {
	Driver    string `json:"driver"`    // the NIC driver that borrows it
	MAC       string `json:"mac"`       // what is set through the physical function
	FormerMAC string `json:"formerMAC"` // what was set before
}

// state is what can be seen of a device at one moment.
type state struct {
	Present  bool
	Driver   string // "" if it has none
	Override string // "" if there is none
	MAC      string // as set through the physical function; "" if that can't be seen
}

// step is one step of a hand-off.
type step string

const (
	done         step = ""
	stepOpen     step = "open record"
	stepSetMAC   step = "set MAC address"
	stepRelease  step = "unbind vfio-pci"
	stepOverride step = "override with NIC driver"
	stepBind     step = "probe NIC driver"
	stepNetdev   step = "bring interface up"
	stepUse      step = "use interface"
	stepPin      step = "pin vfio-pci"
	stepUnbind   step = "unbind NIC driver"
	stepReturn   step = "probe vfio-pci"
	stepResetMAC step = "set former MAC address back"
	stepClose    step = "close record"
)

// Steps are the steps of a hand-off in their order. "set former MAC address
// back" belongs to one that failed; all others are part of every hand-off.
func Steps() []string {
	return []string{
		string(stepOpen), string(stepSetMAC), string(stepRelease), string(stepOverride), string(stepBind), string(stepNetdev), string(stepUse),
		string(stepPin), string(stepUnbind), string(stepReturn), string(stepResetMAC), string(stepClose),
	}
}

// nextToTake is the next step towards the NIC driver. The override is changed
// when the device has no driver: should that never come about, a probe by
// whomever still gives the device to vfio-pci.
func nextToTake(s state, r record) (step, error) {
	switch {
	case !s.Present:
		return done, errors.New("the device is gone")
	case !ours(s, r):
		return done, fmt.Errorf("driver %s has taken the device", s.Driver)
	case s.MAC != r.MAC:
		return stepSetMAC, nil
	case s.Driver == r.Driver:
		return done, nil
	case s.Driver == DriverVFIO:
		return stepRelease, nil
	case s.Override != r.Driver:
		return stepOverride, nil
	default:
		return stepBind, nil
	}
}

// nextToReturn is the next step towards vfio-pci, from any state. The device is
// pinned first: whatever probes it from then on, no other driver gets it.
func nextToReturn(s state, r record) (step, error) {
	switch {
	case !s.Present:
		return done, nil
	case !ours(s, r):
		return done, fmt.Errorf("driver %s has taken the device", s.Driver)
	case s.Override != DriverVFIO:
		return stepPin, nil
	case s.Driver == r.Driver:
		return stepUnbind, nil
	case s.Driver == "":
		return stepReturn, nil
	default:
		return done, nil
	}
}

// ours tells that no driver has the device that this hand-off doesn't give it to.
func ours(s state, r record) bool {
	return slices.Contains([]string{"", DriverVFIO, r.Driver}, s.Driver)
}
