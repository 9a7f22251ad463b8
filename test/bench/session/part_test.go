// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	parts := []Part{{Name: "a"}, {Name: "b", OnlyNamed: true}, {Name: "c"}}
	for names, want := range map[string]string{
		"":    "a c",
		"b":   "b",
		"c a": "c a",
	} {
		chosen, err := Choose(parts, strings.Fields(names))
		if err != nil {
			t.Errorf("choose %q: %v", names, err)
		}
		var got []string
		for _, p := range chosen {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("choose %q: got %q, want %q", names, got, want)
		}
	}
}

func TestChooseUnknown(t *testing.T) {
	chosen, err := Choose([]Part{{Name: "a"}}, []string{"a", "d"})
	if err == nil || !strings.Contains(err.Error(), `"d"`) {
		t.Errorf("chose %v with error %v, want one that has the name", chosen, err)
	}
}
