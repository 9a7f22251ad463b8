// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"slices"
)

// Part is a part of a benchmark.
type Part struct {
	Name    string
	Measure func(context.Context) error
	// OnlyNamed leaves the part out unless it is named: another one measures the same.
	OnlyNamed bool
}

// Choose returns the parts that are named, in the order of the names. Without any names it
// returns all but those that are OnlyNamed.
func Choose(parts []Part, names []string) ([]Part, error) {
	var chosen []Part
	if len(names) == 0 {
		for _, p := range parts {
			if !p.OnlyNamed {
				chosen = append(chosen, p)
			}
		}
		return chosen, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q", name)
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}
