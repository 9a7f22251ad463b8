// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller/policy"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// sharedSet is the address set of a selector on a network, and who uses it.
type sharedSet struct {
	policy.Set
	users map[key]bool
}

func (in *inputs) use(k key, s policy.Set) {
	name := s.Row.Name
	shared := in.regulations.sets[name]
	if shared == nil {
		shared = &sharedSet{s, map[key]bool{}}
		in.regulations.sets[name] = shared
		put(in.regulations.setsAt, locality{k.network, s.Selector.Namespace()}, name, shared)
		in.setComesOrGoes(k.network, s)
	}
	shared.users[k] = true
}

func (in *inputs) disuse(k key, s policy.Set) {
	name := s.Row.Name
	shared := in.regulations.sets[name]
	if delete(shared.users, k); len(shared.users) > 0 {
		return
	}
	delete(in.regulations.sets, name)
	drop(in.regulations.setsAt, locality{k.network, s.Selector.Namespace()}, name)
	in.setComesOrGoes(k.network, s)
}

func (in *inputs) setComesOrGoes(network string, s policy.Set) {
	in.dirty[setKey(network, s.Row.Name)] = true
	in.regulations.concerned = append(in.regulations.concerned, concern{network, s.Selector})
}

func uses(c policy.Compiled, s policy.Set) bool {
	return slices.ContainsFunc(c.Sets, func(other policy.Set) bool { return other.Row.Name == s.Row.Name })
}

// desiredSet is the row of an address set that somebody uses.
func (in *inputs) desiredSet(k key) outcome {
	shared := in.regulations.sets[k.name]
	if shared == nil {
		return outcome{}
	}
	row := shared.Row
	row.Addresses = in.roll.row(row.Name)
	return outcome{rows: nbdb.Rows{AddressSets: []nbdb.AddressSet{row}}}
}

// setChanged marks what depends on whether an address set is empty: the rules of
// a QoS, which are there for addresses only.
func (in *inputs) setChanged(name string) {
	shared := in.regulations.sets[name]
	if shared == nil {
		return
	}
	for k := range shared.users {
		if in.regulations.placed[k.regulation()][k.network].compiled.Source == name {
			in.dirty[k] = true
		}
	}
}
