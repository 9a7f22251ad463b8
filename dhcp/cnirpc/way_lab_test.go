// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package cnirpc

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"
)

// TestWayOut: the way out of a pod is the bridge, and that of the pod that comes next to
// the network, too; where there is none, the kernel is asked again.
func TestWayOut(t *testing.T) {
	s, err := New(Config{StateDir: t.TempDir(), Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	id := os.Getpid()
	bridge := fmt.Sprintf("br%d", id)
	ip(t, "link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { ip(t, "link", "del", bridge) })
	pod := func(n int, options ...string) (at place, port string) {
		name := fmt.Sprintf("cnirpc-%d-%d", id, n)
		ip(t, "netns", "add", name)
		t.Cleanup(func() { ip(t, "netns", "del", name) })
		port = fmt.Sprintf("v%d-%d", id, n)
		ip(t, append(append([]string{"link", "add", port}, options...), "type", "veth", "peer", "name", "net1", "netns", name)...)
		return place{Netns: "/run/netns/" + name, IfName: "net1"}, port
	}
	first, _ := pod(1, "master", bridge)
	second, port := pod(2)
	for _, step := range []struct {
		network string
		at      place
		want    string
	}{
		{"one", first, bridge},
		{"one", second, bridge}, // by the first
		{"other", second, ""},
	} {
		if got, err := s.wayOut([]byte(step.network), step.at); err != nil || got != step.want {
			t.Errorf("network %s, %s: got %q, want %q; error %v", step.network, step.at.Netns, got, step.want, err)
		}
	}
	ip(t, "link", "set", port, "master", bridge)
	if got, err := s.wayOut([]byte("other"), second); err != nil || got != bridge {
		t.Errorf("after it has become a port: got %q, error %v", got, err)
	}
}
