// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

func TestStepsOf(t *testing.T) {
	const log = `time=2026-01-01T00:00:00.000Z level=INFO msg="serving CNI calls" socket=/run/x
time=2026-01-01T00:00:00.000Z level=DEBUG msg="step of an ADD" step="announce MAC" took=2ms sandbox=a ifname=net1
time=2026-01-01T00:00:00.000Z level=DEBUG msg="step of an ADD" step="announce MAC" took=5ms sandbox=other ifname=net1
time=2026-01-01T00:00:00.000Z level=DEBUG msg="step of an ADD" step="announce MAC" took=3ms sandbox=b ifname=net1
time=2026-01-01T00:00:00.000Z level=DEBUG msg="step of an ADD" step=plug took=1.5ms sandbox=a ifname=net1
time=2026-01-01T00:00:00.000Z level=DEBUG msg="step of an ADD" step=plug took=500µs sandbox=b ifname=net1
`
	adds := calls{"a": 10 * time.Millisecond, "b": 20 * time.Millisecond}
	steps, rest, err := stepsOf(adds, log)
	if err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	want := []step{{"announce MAC", times.Times{2 * ms, 3 * ms}}, {"plug", times.Times{1500 * time.Microsecond, 500 * time.Microsecond}}}
	if diff := cmp.Diff(want, steps, cmp.AllowUnexported(step{})); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	slices.Sort(rest)
	if diff := cmp.Diff(times.Times{6500 * time.Microsecond, 16500 * time.Microsecond}, rest); diff != "" {
		t.Errorf("rest (-want +got):\n%s", diff)
	}
	adds["c"] = ms
	if _, _, err := stepsOf(adds, log); err == nil {
		t.Error("no error about an ADD that the log does not tell of")
	}
}
