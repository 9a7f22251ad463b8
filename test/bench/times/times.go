// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package times is what a benchmark tells of durations: quantiles, ratios, milliseconds.
package times

import (
	"math"
	"slices"
	"time"
)

// Times are the durations of one thing that was done again and again, in any order.
type Times []time.Duration

// Quantile is the time that a share q of them, of 0 to 1, does not exceed: one of them,
// or 0 if there are none.
func (t Times) Quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

// Median is the time that half of them do not exceed.
func (t Times) Median() time.Duration { return t.Quantile(0.5) }

// Milliseconds are a duration in milliseconds, with its fraction.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Ratio is got divided by the yardstick, or 0 if there is no yardstick.
func Ratio(got, yardstick time.Duration) float64 {
	if yardstick <= 0 {
		return 0
	}
	return float64(got) / float64(yardstick)
}
