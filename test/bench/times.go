// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// times are the durations of one thing that was done again and again.
type times []time.Duration

// quantile is the time that a share q of them does not exceed.
func (t times) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

func (t times) median() time.Duration { return t.quantile(0.5) }

// String has the median and the 95th percentile.
func (t times) String() string { return both(t.median(), t.quantile(0.95)) }

func both(median, p95 time.Duration) string {
	return fmt.Sprintf("%.2f / %.2f ms", milliseconds(median), milliseconds(p95))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
