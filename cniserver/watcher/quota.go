// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import "time"

// quota is how many more frames of a class are looked at.
type quota struct {
	left    float64
	updated time.Time
}

// What each class of a port may cost: far more than a guest needs for its own
// address, and little for the node.
const (
	quotaRate  = 20 // frames a second
	quotaBurst = 50
)

// take takes one frame's worth; false if nothing is left.
func (q *quota) take(now time.Time) bool {
	if q.updated.IsZero() {
		q.left = quotaBurst
	} else {
		q.left = min(quotaBurst, q.left+quotaRate*max(0, now.Sub(q.updated).Seconds()))
	}
	q.updated = now
	if q.left < 1 {
		return false
	}
	q.left--
	return true
}
