// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"maps"
	"slices"
)

// Values of columns in the notation of RFC 7047, 5.1. Each is of plain types that
// encoding/json writes in one go: what a type of libovsdb has marshalled is read again at
// each level above it, which took half of the time until a transaction was sent.

// uuidAtom is a <uuid>.
func uuidAtom(uuid string) [2]string { return [2]string{"uuid", uuid} }

// set is a <set>.
func set[T any](elements ...T) [2]any {
	return [2]any{"set", append([]T{}, elements...)} // without any it must not be null
}

func uuidSet(uuids ...string) [2]any {
	atoms := make([][2]string, len(uuids))
	for i, u := range uuids {
		atoms[i] = uuidAtom(u)
	}
	return set(atoms...)
}

// ovsMap is a <map>.
func ovsMap[V string | int](m map[string]V) [2]any {
	pairs := make([][2]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]any{k, m[k]})
	}
	return [2]any{"map", pairs}
}
