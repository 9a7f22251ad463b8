// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct{ last, served, want time.Duration }{
		{0, 0, minBackoff},
		{minBackoff, 0, 2 * minBackoff},
		{8 * second, 0, maxBackoff},
		{maxBackoff, 0, maxBackoff},
		{second, second / 2, 2 * second}, // it will not be better the next time
		{second, 2 * second, minBackoff},
		{maxBackoff, time.Hour, minBackoff},
	} {
		if got := backoff(tt.last, tt.served); got != tt.want {
			t.Errorf("backoff(%v, %v) = %v, want %v", tt.last, tt.served, got, tt.want)
		}
	}
}
