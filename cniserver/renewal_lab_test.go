// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package cniserver

import (
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// podOf has the calling goroutine's thread live in a network namespace with a veth
// pair, net1 and other, both up, until the test ends, and returns the attachment of net1.
func podOf(t *testing.T, mtu, metric int) attachment {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the test, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	ip(t, "link add net1 mtu", mtu, "type veth peer name other mtu", mtu)
	ip(t, "link set other up")
	ip(t, "link set net1 up")
	return attachment{
		Netns: fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), IfName: "net1",
		MTU: mtu, DefaultRoute: true, RouteMetric: metric,
	}
}

// ip runs ip(8) in the thread's network namespace.
func ip(t *testing.T, args ...any) string {
	t.Helper()
	fields := strings.Fields(fmt.Sprintln(args...))
	out, err := exec.Command("ip", fields...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %v: %v: %s", fields, err, out)
	}
	return string(out)
}

// leaseOf is a lease with routes that are given as "DST GATEWAY".
func leaseOf(addr, gateway string, mtu int, routes ...string) dhcp.Lease {
	l := dhcp.Lease{Addr: netip.MustParsePrefix(addr), MTU: mtu}
	if gateway != "" {
		l.Gateway = netip.MustParseAddr(gateway)
	}
	for _, r := range routes {
		dst, by, _ := strings.Cut(r, " ")
		l.Routes = append(l.Routes, dhcp.Route{Dst: netip.MustParsePrefix(dst), Gateway: netip.MustParseAddr(by)})
	}
	return l
}

// TestReconfigure changes the lease of a pod's interface, step by step, as a network
// without and with a priority has it.
func TestReconfigure(t *testing.T) {
	for _, metric := range []int{0, 50} {
		t.Run(fmt.Sprintf("metric %d", metric), func(t *testing.T) { testReconfigure(t, metric) })
	}
}

func testReconfigure(t *testing.T, metric int) {
	a := podOf(t, 1400, metric)
	none := dhcp.Lease{}
	first := leaseOf("10.1.0.5/24", "10.1.0.1", 1300, "10.9.0.0/16 10.1.0.2", "10.8.0.0/16 10.1.0.2")
	wide := leaseOf("10.1.0.5/16", "10.1.0.1", 1200, "10.9.0.0/16 10.1.0.2", "10.8.0.0/16 10.1.0.2")
	grown := leaseOf("10.1.0.5/16", "10.1.0.1", 1350, "10.9.0.0/16 10.1.0.4", "10.7.0.0/16 10.1.0.2")
	unlimited := leaseOf("10.1.0.5/16", "", 9000, "10.7.0.0/16 10.1.0.2")
	second := leaseOf("10.1.0.6/16", "10.1.0.1", 0, "10.7.0.0/16 10.1.0.2")
	single := leaseOf("10.2.0.5/32", "10.3.0.1", 1300)
	const foreign = "10.8.0.0/16 via 10.1.0.2 proto dhcp metric 10"
	for _, step := range []struct {
		name     string
		before   string // a command of ip(8) to begin with
		old, now dhcp.Lease
		addrs    string
		routes   []string // with the metric left out
		foreign  []string
		mtu      int
	}{
		{"first lease", "", none, first, "10.1.0.5/24",
			[]string{"default via 10.1.0.1", "10.8.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.2"}, nil, 1300},
		{"mask, and a smaller MTU", "", first, wide, "10.1.0.5/16",
			[]string{"default via 10.1.0.1", "10.8.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.2"}, nil, 1200},
		{"routes, and a larger MTU", "", wide, grown, "10.1.0.5/16",
			[]string{"default via 10.1.0.1", "10.7.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.4"}, nil, 1350},
		{"told again", "", wide, grown, "10.1.0.5/16",
			[]string{"default via 10.1.0.1", "10.7.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.4"}, nil, 1350},
		{"told again, with the old mask still there", "addr add 10.1.0.5/24 dev net1", first, grown, "10.1.0.5/16",
			[]string{"default via 10.1.0.1", "10.7.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.4"}, nil, 1350},
		{"told again, with an old route still there", "route add 10.8.0.0/16 via 10.1.0.2 proto dhcp" + withMetric(metric), wide, grown, "10.1.0.5/16",
			[]string{"default via 10.1.0.1", "10.7.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.4"}, nil, 1350},
		{"no gateway, and an MTU above the network's", "", grown, unlimited, "10.1.0.5/16",
			[]string{"10.7.0.0/16 via 10.1.0.2"}, nil, 1400},
		{"another address of the subnet, and a gateway", "addr add 198.51.100.5/24 dev net1", unlimited, second, "10.1.0.6/16 198.51.100.5/24",
			[]string{"default via 10.1.0.1", "10.7.0.0/16 via 10.1.0.2"}, nil, 1400},
		{"told again, with the old address still there", "addr add 10.1.0.5/16 dev net1", unlimited, second, "10.1.0.6/16 198.51.100.5/24",
			[]string{"default via 10.1.0.1", "10.7.0.0/16 via 10.1.0.2"}, nil, 1400},
		{"another subnet, of one address", "", second, single, "10.2.0.5/32 198.51.100.5/24",
			[]string{"default via 10.3.0.1", "10.3.0.1 scope link"}, nil, 1300},
		{"and back", "", single, first, "10.1.0.5/24 198.51.100.5/24",
			[]string{"default via 10.1.0.1", "10.8.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.2"}, nil, 1300},
		{"a route that somebody else has added", "route add " + foreign + " dev net1", first, leaseOf("10.1.0.5/24", "", 1300), "10.1.0.5/24 198.51.100.5/24",
			nil, []string{foreign}, 1300},
		{"first again", "route del 10.8.0.0/16 metric 10", none, first, "10.1.0.5/24 198.51.100.5/24",
			[]string{"default via 10.1.0.1", "10.8.0.0/16 via 10.1.0.2", "10.9.0.0/16 via 10.1.0.2"}, nil, 1300},
		{"lease lost", "", first, none, "198.51.100.5/24", nil, nil, 1300},
		{"lost again", "", first, none, "198.51.100.5/24", nil, nil, 1300},
	} {
		if step.before != "" {
			ip(t, step.before)
		}
		if step.now.Addr.IsValid() {
			seen := watchAddrs(t)
			routes, err := reconfigure(a, step.old, step.now)
			if err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if len(routes) != len(step.routes) {
				t.Errorf("%s: reconfigure names the routes %v", step.name, routes)
			}
			wantOrder(t, step.name, seen(), step.old.Addr, step.now.Addr)
		} else if err := deconfigure(a, step.old); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		want := slices.Clone(step.foreign)
		for _, r := range step.routes {
			want = append(want, routeText(r, metric))
		}
		addrs, routes, mtu := shown(t)
		if diff := cmp.Diff(step.addrs, addrs); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), routes); diff != "" {
			t.Errorf("%s: routes (-want +got):\n%s", step.name, diff)
		}
		if mtu != step.mtu {
			t.Errorf("%s: MTU %d, want %d", step.name, mtu, step.mtu)
		}
	}
}

// routeText is a lease's route as ip(8) shows it.
func routeText(r string, metric int) string {
	dst, scope, onLink := strings.Cut(r, " scope")
	text := dst + " proto dhcp"
	if onLink {
		text += " scope" + scope
	}
	return text + withMetric(metric)
}

// withMetric is what ip(8) has behind a route.
func withMetric(metric int) string {
	if metric == 0 {
		return ""
	}
	return fmt.Sprintf(" metric %d", metric)
}

// shown are net1's addresses, its routes but for those of the kernel, both sorted, and
// its MTU.
func shown(t *testing.T) (addrs string, routes []string, mtu int) {
	t.Helper()
	var all []string
	for line := range strings.Lines(ip(t, "-o -4 addr show dev net1")) {
		all = append(all, strings.Fields(line)[3])
	}
	for line := range strings.Lines(ip(t, "route show dev net1")) {
		if !strings.Contains(line, "proto kernel") {
			routes = append(routes, strings.Join(strings.Fields(line), " "))
		}
	}
	link, err := netlink.LinkByName("net1")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	slices.Sort(routes)
	return strings.Join(all, " "), routes, link.Attrs().MTU
}

// watchAddrs begins to note what happens to the addresses of net1. What it returns ends
// that, and says it: "+" and an address that was added, "-" and one that was removed.
func watchAddrs(t *testing.T) func() []string {
	t.Helper()
	updates, done := make(chan netlink.AddrUpdate), make(chan struct{})
	if err := netlink.AddrSubscribe(updates, done); err != nil {
		t.Fatal(err)
	}
	return func() []string {
		const last = "203.0.113.9/32"
		ip(t, "addr add", last, "dev net1")
		var seen []string
		for u := range updates {
			change := "-"
			if u.NewAddr {
				change = "+"
			}
			if u.LinkAddress.String() == last {
				break
			}
			seen = append(seen, change+u.LinkAddress.String())
		}
		close(done)
		for range updates {
		}
		ip(t, "addr del", last, "dev net1")
		return seen
	}
}

// wantOrder fails if an address that takes another's place comes after that goes.
func wantOrder(t *testing.T, step string, seen []string, old, now netip.Prefix) {
	t.Helper()
	comes, goes := slices.Index(seen, "+"+now.String()), slices.Index(seen, "-"+old.String())
	if comes < 0 || goes >= 0 && goes < comes {
		t.Errorf("%s: %v", step, seen)
	}
}
