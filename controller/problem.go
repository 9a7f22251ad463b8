// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// Reasons of the problems that Source.Report gets.
const (
	// ReasonInvalidConfig: the configuration in a NAD is not valid.
	ReasonInvalidConfig = "InvalidNetworkConfig"
	// ReasonConflictingConfig: an older NAD defines the same network otherwise.
	ReasonConflictingConfig = "ConflictingNetworkConfig"
	// ReasonNameCollision: rows would have the names of somebody else's, since
	// different names of networks and NADs can have the same prefix.
	ReasonNameCollision = "NameCollision"
	// ReasonInvalidAnnotation: a pod's annotation, or an entry of it, can't be
	// used. Rows that exist already stay as they are.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonNetworkUnusable: the NAD of a pod's attachment is missing or not
	// served. Rows that exist already stay as they are.
	ReasonNetworkUnusable = "NetworkUnusable"
	// ReasonMACInUse: another port of the network has the pod's MAC address.
	ReasonMACInUse = "MACAddressInUse"
	// ReasonAddressInUse: two pods' ports on a network want one IP address.
	ReasonAddressInUse = "AddressInUse"
	// ReasonAddressRefused: the address that a virtual machine's guest speaks from
	// is not taken to be its own.
	ReasonAddressRefused = "AddressRefused"
	// ReasonFlood: a virtual machine's guest speaks from so many addresses that
	// OVN doesn't listen to it for a while.
	ReasonFlood = "TooManyAddresses"
	// ReasonNotBound: OVN has not bound the port of a pod where the pod is.
	ReasonNotBound = "PortNotBound"
	// ReasonInvalidPolicy: a MultiNetworkPolicy can't be used as it is. Until it
	// can, nothing is allowed to the pods that it selects.
	ReasonInvalidPolicy = "InvalidPolicy"
	// ReasonInvalidQoS: a NetworkQoS can't be used, and isn't.
	ReasonInvalidQoS = "InvalidNetworkQoS"
	// ReasonRefused: the northbound database did not take the rows, or holds
	// others of the same name. It is tried again.
	ReasonRefused = "NorthboundRefused"
)

// problem is something that is wrong with an object.
type problem struct {
	object  object
	reason  string
	message string
}

// ledger has the problems of all objects by what they came from, and reports
// those of an object when they change.
type ledger struct {
	source  Source
	log     *slog.Logger
	metrics metrics

	bySource map[string][]problem
	byObject map[object]map[string][]problem // then by source
	dirty    map[object]bool
	reported map[object]map[string]string // messages by reason
}

func newLedger(source Source, log *slog.Logger, m metrics) *ledger {
	return &ledger{
		source: source, log: log, metrics: m,
		bySource: map[string][]problem{},
		byObject: map[object]map[string][]problem{},
		dirty:    map[object]bool{},
		reported: map[object]map[string]string{},
	}
}

// set replaces the problems that come from one source.
func (l *ledger) set(from string, problems []problem) {
	for _, p := range l.bySource[from] {
		delete(l.byObject[p.object], from)
		l.dirty[p.object] = true
	}
	delete(l.bySource, from)
	if len(problems) == 0 {
		return
	}
	l.bySource[from] = problems
	for _, p := range problems {
		if l.byObject[p.object] == nil {
			l.byObject[p.object] = map[string][]problem{}
		}
		l.byObject[p.object][from] = append(l.byObject[p.object][from], p)
		l.dirty[p.object] = true
	}
}

// know makes sure that an object is reported on at least once, so that what an
// earlier run has reported is cleared.
func (l *ledger) know(o object) {
	if _, ok := l.reported[o]; !ok {
		l.dirty[o] = true
	}
}

// renew makes sure that an object is reported on, also if the report is the same:
// it says that the object as it is now has been looked at.
func (l *ledger) renew(o object) {
	delete(l.reported, o)
	l.dirty[o] = true
}

// flush reports the objects whose problems have changed. It returns false when
// some could not be reported; those are reported by the next flush.
func (l *ledger) flush(ctx context.Context) bool {
	ok := true
	for o := range l.dirty {
		now := l.problems(o)
		before, known := l.reported[o]
		if known && maps.Equal(now, before) {
			delete(l.dirty, o)
			continue
		}
		if err := l.source.Report(ctx, o.kind, o.namespace, o.name, now); err != nil {
			l.log.Warn("problems can't be reported", "object", o.String(), "problems", now, "err", err)
			ok = false
			continue
		}
		if len(now) > 0 || len(before) > 0 {
			l.log.Info("problems of an object changed", "object", o.String(), "problems", now)
		}
		l.metrics.reported(o.kind, before, now)
		l.reported[o] = now
		delete(l.dirty, o)
	}
	return ok
}

// forget drops what was reported on an object that is gone and has no problem.
func (l *ledger) forget(o object) {
	if len(l.byObject[o]) == 0 && !l.dirty[o] {
		delete(l.byObject, o)
		delete(l.reported, o)
	}
}

func (l *ledger) problems(o object) map[string]string {
	messages := map[string][]string{}
	for _, from := range slices.Sorted(maps.Keys(l.byObject[o])) {
		for _, p := range l.byObject[o][from] {
			messages[p.reason] = append(messages[p.reason], p.message)
		}
	}
	out := map[string]string{}
	for reason, m := range messages {
		out[reason] = strings.Join(m, "; ")
	}
	return out
}
