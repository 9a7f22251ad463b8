// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package cnirpc

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// ip runs ip(8).
func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
	return string(out)
}

// TestFollow has an interface follow its lease, as a plugin has left it, step by step.
func TestFollow(t *testing.T) {
	name, at := newPods(t).netns()
	at.Priority = 50
	ip(t, "-n", name, "link", "add", "net1", "type", "veth", "peer", "name", "other")
	ip(t, "-n", name, "link", "set", "other", "up")
	ip(t, "-n", name, "link", "set", "net1", "up")
	d, err := at.open("")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	lease := func(addr, gateway string, routes ...string) dhcp.Lease {
		l := dhcp.Lease{Addr: netip.MustParsePrefix(addr)}
		if gateway != "" {
			l.Gateway = netip.MustParseAddr(gateway)
		}
		for _, r := range routes {
			dst, by, _ := strings.Cut(r, " ")
			l.Routes = append(l.Routes, dhcp.Route{Dst: netip.MustParsePrefix(dst), Gateway: netip.MustParseAddr(by)})
		}
		return l
	}
	none := dhcp.Lease{}
	first := lease("10.1.0.5/24", "10.1.0.1", "10.9.0.0/16 10.1.0.2", "10.8.0.0/16 10.1.0.2")
	second := lease("10.1.0.6/24", "10.1.0.3", "10.9.0.0/16 10.1.0.4", "10.7.0.0/16 10.1.0.4")
	single := lease("10.2.0.5/32", "10.3.0.1")
	for _, step := range []struct {
		name       string
		before     []string // a command of ip(8) to begin with
		old, now   dhcp.Lease
		withdrawn  bool
		addrs      string
		wantRoutes []string
	}{
		{"first lease", nil, none, first, false, "10.1.0.5/24",
			[]string{"default via 10.1.0.1 metric 50", "10.8.0.0/16 via 10.1.0.2 metric 50", "10.9.0.0/16 via 10.1.0.2 metric 50"}},
		{"other times only", []string{"route", "del", "10.8.0.0/16"}, first, first, false, "10.1.0.5/24",
			[]string{"default via 10.1.0.1 metric 50", "10.9.0.0/16 via 10.1.0.2 metric 50"}},
		{"another address of the subnet, and other routers", []string{"addr", "add", "198.51.100.5/24", "dev", "net1"}, first, second, false, "10.1.0.6/24 198.51.100.5/24",
			[]string{"default via 10.1.0.3 metric 50", "10.7.0.0/16 via 10.1.0.4 metric 50", "10.9.0.0/16 via 10.1.0.4 metric 50"}},
		{"the same again, after it was cut off", []string{"addr", "add", "10.1.0.5/24", "dev", "net1"}, first, second, false, "10.1.0.6/24 198.51.100.5/24",
			[]string{"default via 10.1.0.3 metric 50", "10.7.0.0/16 via 10.1.0.4 metric 50", "10.9.0.0/16 via 10.1.0.4 metric 50"}},
		{"a gateway off the subnet", nil, second, single, false, "10.2.0.5/32 198.51.100.5/24",
			[]string{"default via 10.3.0.1 metric 50", "10.3.0.1 scope link metric 50"}},
		{"lease lost", nil, single, none, true, "198.51.100.5/24", nil},
		{"lost again", nil, single, none, true, "198.51.100.5/24", nil},
		{"lease again, and a default route of somebody else", []string{"route", "add", "default", "via", "198.51.100.1", "metric", "50"}, none, first, false, "10.1.0.5/24 198.51.100.5/24",
			[]string{"default via 198.51.100.1 metric 50", "10.8.0.0/16 via 10.1.0.2 metric 50", "10.9.0.0/16 via 10.1.0.2 metric 50"}},
		{"routes that the plugin has left out", nil, lease("10.1.0.5/24", "", "10.6.0.0/16 10.1.0.1"), lease("10.1.0.6/24", "", "10.6.0.0/16 10.1.0.1"), false, "10.1.0.6/24 198.51.100.5/24",
			[]string{"default via 198.51.100.1 metric 50", "10.8.0.0/16 via 10.1.0.2 metric 50", "10.9.0.0/16 via 10.1.0.2 metric 50"}},
	} {
		if step.before != nil {
			ip(t, append([]string{"-n", name}, step.before...)...)
		}
		if step.withdrawn {
			err = d.withdraw(step.old)
		} else {
			err = d.follow(step.old, step.now, at.Priority)
		}
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		var addrs, routes []string
		for line := range strings.Lines(ip(t, "-n", name, "-o", "-4", "addr", "show", "dev", "net1")) {
			addrs = append(addrs, strings.Fields(line)[3])
		}
		for line := range strings.Lines(ip(t, "-n", name, "route", "show", "dev", "net1")) {
			if !strings.Contains(line, "proto kernel") {
				routes = append(routes, strings.Join(strings.Fields(line), " "))
			}
		}
		if diff := cmp.Diff(strings.Fields(step.addrs), sorted(addrs)); diff != "" {
			t.Errorf("%s: addresses (-want +got):\n%s", step.name, diff)
		}
		if diff := cmp.Diff(sorted(step.wantRoutes), sorted(routes)); diff != "" {
			t.Errorf("%s: routes (-want +got):\n%s", step.name, diff)
		}
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
