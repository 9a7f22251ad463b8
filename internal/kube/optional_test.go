// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestFollowing has the API serve one version, another, or none, look by look.
func TestFollowing(t *testing.T) {
	v1, v2 := schema.GroupVersionResource{Version: "v1"}, schema.GroupVersionResource{Version: "v2"}
	none := schema.GroupVersionResource{}
	for name, looks := range map[string][]struct {
		served schema.GroupVersionResource
		change bool
	}{
		"none at first":           {{none, true}, {none, false}, {v1, true}, {v1, false}},
		"missed once":             {{v1, true}, {none, false}, {v1, false}, {none, false}, {v1, false}},
		"gone":                    {{v1, true}, {none, false}, {none, true}, {none, false}, {v1, true}},
		"another version":         {{v1, true}, {v2, true}, {v2, false}},
		"missed, then another":    {{v1, true}, {none, false}, {v2, true}, {none, false}, {v2, false}},
		"gone, and back for once": {{v1, true}, {none, false}, {none, true}, {v1, true}, {none, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var f following
			for i, look := range looks {
				if change := f.see(look.served); change != look.change {
					t.Errorf("look %d: %v is followed from now on: %v", i, look.served, change)
				}
			}
		})
	}
}
