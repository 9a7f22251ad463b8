// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// TestDeniedAddressIsGuarded: a guest that has got the lease of another one's address
// is held to no address, and so is guarded as an open port is.
func TestDeniedAddressIsGuarded(t *testing.T) {
	startBench(t, func(b *bench) {
		guarded := func() (found bool) {
			synctest.Wait()
			b.db.do(func() {
				for _, g := range b.db.rows.PortGroups {
					found = found || g.ExternalIDs["k8s.ovn.org/name"] == "openPorts" && g.Ports.Has(port1)
				}
			})
			return found
		}
		b.m.set(t, vmYAML("p1", mac1, "192.0.2.2/24", podnet.StateBound))
		b.wantProblem("two have the address", ReasonAddressInUse)
		if !guarded() {
			t.Error("the port without an address is not guarded")
		}
		b.m.set(t, vmYAML("p1", mac1, "192.0.2.3/24", podnet.StateBound))
		if guarded() {
			t.Error("the port is guarded with an address of its own")
		}
	}, netNAD, vmYAML("p2", mac2, "192.0.2.2/24", podnet.StateBound))
}

// TestKeptPortIsGuarded: an open port stays guarded while it stays, whatever keeps what
// is wanted of it from being known, and an address of a port that stays is still not
// others'.
func TestKeptPortIsGuarded(t *testing.T) {
	second := strings.NewReplacer("name: net", "name: second", "ns/net", "ns/second").Replace(netNAD)
	onSecond := func(pod string) string { return strings.ReplaceAll(pod, "ns/net", "ns/second") }
	const port = "ns.second_ns_p1"
	for name, unknown := range map[string]func(b *bench){
		"annotation": func(b *bench) { b.m.annotate("ns", "p1", podnet.Annotation, "{") },
		"entry":      func(b *bench) { b.m.annotate("ns", "p1", podnet.Annotation, `{"ns/second":{}}`) },
		"NAD":        func(b *bench) { b.m.remove(kindNAD, "ns/second") },
	} {
		t.Run(name, func(t *testing.T) {
			for state, want := range map[string]string{podnet.StateOpen: "", podnet.StateBound: "192.0.2.2"} {
				startBench(t, func(b *bench) {
					unknown(b)
					check := func(when string) {
						t.Helper()
						synctest.Wait()
						b.db.do(func() {
							if !slices.ContainsFunc(b.db.rows.Ports, func(p nbdb.Port) bool { return p.Name == port }) {
								t.Errorf("%s: %s: no port", state, when)
							}
							open, taken := false, false
							for _, g := range b.db.rows.PortGroups {
								open = open || g.Ports.Has(port)
							}
							for _, a := range b.db.rows.AddressSets {
								taken = taken || a.Addresses.Has(want)
							}
							if open != (want == "") || taken != (want != "") {
								t.Errorf("%s: %s: guarded: %v, its address: %v", state, when, open, taken)
							}
						})
					}
					check("without")
					before := b.db.transactions
					b.stop()
					b.start()
					check("after a restart")
					if b.db.transactions != before {
						t.Errorf("%s: a restart has changed something", state)
					}
				}, netNAD, second, onSecond(vmYAML("p1", mac1, "192.0.2.2/24", state)))
			}
		})
	}
}
