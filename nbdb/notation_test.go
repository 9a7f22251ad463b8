// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"encoding/json"
	"testing"
)

func TestNotation(t *testing.T) {
	for want, value := range map[string]any{
		`["uuid","u1"]`:                       uuidAtom("u1"),
		`["set",[]]`:                          set[bool](),
		`["set",[true]]`:                      set(true),
		`["set",["a","b"]]`:                   set("a", "b"),
		`["set",[["uuid","u1"]]]`:             uuidSet("u1"),
		`["map",[]]`:                          ovsMap[int](nil),
		`["map",[["burst",100],["rate",10]]]`: ovsMap(map[string]int{"rate": 10, "burst": 100}),
		`["map",[["a","1"],["b","2"]]]`:       ovsMap(map[string]string{"b": "2", "a": "1"}),
	} {
		got, err := json.Marshal(value)
		if err != nil || string(got) != want {
			t.Errorf("got %s, error %v, want %s", got, err, want)
		}
	}
	// Without any element it is no null.
	if got, err := json.Marshal(uuidSet()); err != nil || string(got) != `["set",[]]` {
		t.Errorf("got %s, error %v", got, err)
	}
}
