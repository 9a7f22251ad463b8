// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"log/slog"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/store"
)

func TestSupersedes(t *testing.T) {
	at := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	old := attachment{ContainerID: "c1", IfName: "net1", Network: "lan", MAC: "02:00:00:00:00:01", Since: at}
	for _, test := range []struct {
		name   string
		change func(*attachment)
		want   bool
	}{
		{"a newer sandbox", func(a *attachment) { a.ContainerID, a.Since = "c2", at.Add(1) }, true},
		{"an older sandbox", func(a *attachment) { a.ContainerID, a.Since = "c2", at.Add(-1) }, false},
		{"itself", func(a *attachment) { a.Since = at.Add(1) }, false},
		{"another client", func(a *attachment) { a.ContainerID, a.MAC, a.Since = "c2", "02:00:00:00:00:02", at.Add(1) }, false},
		{"another network", func(a *attachment) { a.ContainerID, a.Network, a.Since = "c2", "wan", at.Add(1) }, false},
	} {
		newer := old
		test.change(&newer)
		if got := newer.supersedes(old); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

func TestHostInterfaceNames(t *testing.T) {
	records, err := store.Open[attachment](t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: records}
	for _, test := range []struct{ containerID, ifname, want string }{
		{"0123456789abcdef0123456789abcdef", "net1", "0123456789abc_0"},
		{"0123456789abcdef0123456789abcdef", "net2", "0123456789abc_1"},
		{"0123456789abcffffff", "net1", "0123456789abc_2"},
		{"short", "net1", "short_0"},
	} {
		a, err := s.open(attachment{ContainerID: test.containerID, IfName: test.ifname})
		if err != nil {
			t.Fatal(err)
		}
		if a.HostIfName != test.want {
			t.Errorf("%s %s: got %s, want %s", test.containerID, test.ifname, a.HostIfName, test.want)
		}
	}
}
