// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package times

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var twenty Times
	for i := range 20 {
		twenty = append(twenty, time.Duration(20-i)*time.Millisecond)
	}
	for _, test := range []struct {
		name  string
		times Times
		q     float64
		want  time.Duration
	}{
		{"none", nil, 0.5, 0},
		{"one", Times{time.Second}, 0.95, time.Second},
		{"the lesser one in the middle", twenty, 0.5, 10 * time.Millisecond},
		{"all but one", twenty, 0.95, 19 * time.Millisecond},
		{"all", twenty, 1, 20 * time.Millisecond},
		{"the least", twenty, 0, time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.times.Quantile(test.q); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
