//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// TestServerChangesLease has the server change all but the address, on a network with a
// priority: everything follows, and is told once. Then another server takes its place.
func TestServerChangesLease(t *testing.T) {
	options := filepath.Join(t.TempDir(), "options")
	w := newWorld(t, site.Options{Lab: lab.Options{
		LeaseTime: 2 * time.Minute, DNSMasqArgs: append([]string{"--dhcp-optsfile=" + options}, renewing...),
	}})
	gateway := w.Lab.Phys.Gateway.String()
	serve := func(mtu int, dns, route string) {
		w.must(w.Lab.DHCP.Stop())
		w.must(os.WriteFile(options, fmt.Appendf(nil, "option:mtu,%d\noption:dns-server,%s\noption:classless-static-route,%s,%s\n", mtu, dns, route, gateway), 0o644))
		w.must(w.Lab.DHCP.Start(t.Context()))
	}
	serve(1400, "192.0.2.53", "198.51.100.0/24")
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lanWith(map[string]any{"ipam": map[string]any{"type": "dhcp", "priority": 50}}), netns)
	// check compares the pod and the answer to an ADD with what the server says.
	check := func(mtu int, dns, route string) {
		t.Helper()
		r := w.cni(0, call)
		if r.Interfaces[1].Mtu != mtu || len(r.DNS.Nameservers) != 1 || r.DNS.Nameservers[0] != dns ||
			len(r.Routes) != 1 || r.Routes[0].Dst.String() != route || r.Routes[0].Priority != 50 {
			t.Errorf("result: MTU %d, DNS %v, routes %v", r.Interfaces[1].Mtu, r.DNS, r.Routes)
		}
		if got, want := w.in(netns, "ip", "route", "show", "proto", "dhcp"), fmt.Sprintf("%s via %s dev net1 metric 50", route, gateway); got != want {
			t.Errorf("routes %q, want %q", got, want)
		}
		if got := w.in(netns, "ip", "-o", "link", "show", "net1"); !strings.Contains(got, fmt.Sprintf("mtu %d ", mtu)) {
			t.Errorf("interface: %s", got)
		}
		if e, _ := w.entry(pod, "default/lan"); len(e.Routes) != 1 || e.Routes[0].Dest.String() != route {
			t.Errorf("annotation entry %+v", e)
		}
	}
	check(1400, "192.0.2.53", "198.51.100.0/24")
	serve(1300, "192.0.2.54", "203.0.113.0/24")
	const reason = "DHCPLeaseChanged"
	w.told(pod, 20*time.Second, reason, "routes 203.0.113.0/24 by "+gateway+", MTU 1300, DNS servers 192.0.2.54; DNS of a running pod")
	check(1300, "192.0.2.54", "203.0.113.0/24")
	// By the second renewal the first has been dealt with.
	w.awaitLog("DHCPACK(br0)", strings.Count(w.Lab.DHCP.Log(), "DHCPACK(br0)")+2)
	events, err := w.events(pod)
	w.must(err)
	if n := strings.Count(events, `"reason"`); n != 1 {
		t.Errorf("%d events: %s", n, events)
	}
	// Another server takes over, with what the first one had.
	other := w.Lab.Phys.Host(2)
	w.moveServer(other)
	w.awaitServer(pod, "default/lan", other)
	w.told(pod, 20*time.Second, reason, fmt.Sprintf("is from DHCP server %s now, before from %s", other, gateway))
	check(1300, "192.0.2.54", "203.0.113.0/24")
	call.Command = "DEL"
	w.cni(0, call)
	w.awaitLog("DHCPRELEASE(br0)", 1)
}
