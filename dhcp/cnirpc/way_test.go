// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"testing"
	"time"
)

func TestWays(t *testing.T) {
	w := ways{known: map[network]way{}}
	start := time.Now()
	one, other := network{1}, network{2}
	if _, ok := w.get(one, start); ok {
		t.Error("a way was known before any was found")
	}
	w.put(one, way{"br0", start})
	if device, ok := w.get(one, start.Add(wayTime)); !ok || device != "br0" {
		t.Errorf("got %q, %v", device, ok)
	}
	if _, ok := w.get(other, start); ok {
		t.Error("a way is another network's")
	}
	if _, ok := w.get(one, start.Add(wayTime+1)); ok {
		t.Error("a way is known for too long")
	}
	w.put(other, way{"br1", start.Add(wayTime + 1)})
	if len(w.known) != 1 {
		t.Errorf("%d ways are kept", len(w.known))
	}
}
