// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/store"
)

func TestSupersedes(t *testing.T) {
	old := attachment{
		ContainerID: "c1", IfName: "net1", Namespace: "ns", Pod: "web", UID: "u1", NADKey: "ns/lan", Network: "lan",
		MAC: "02:00:00:00:00:01", Sequence: 5,
	}
	for _, test := range []struct {
		name   string
		change func(*attachment)
		want   bool
	}{
		{"a newer sandbox", func(a *attachment) { a.ContainerID, a.Sequence = "c2", 6 }, true},
		{"a newer pod of the same name", func(a *attachment) { a.ContainerID, a.UID, a.Sequence = "c2", "u2", 6 }, true},
		{"an older sandbox", func(a *attachment) { a.ContainerID, a.Sequence = "c2", 4 }, false},
		{"itself", func(a *attachment) {}, false},
		{"another client", func(a *attachment) { a.MAC, a.Sequence = "02:00:00:00:00:02", 6 }, false},
		{"another pod that asks for the same MAC", func(a *attachment) { a.Pod, a.Sequence = "thief", 6 }, false},
		{"another NAD of the network", func(a *attachment) { a.NADKey, a.Sequence = "ns/lan2", 6 }, false},
		{"another network", func(a *attachment) { a.Network, a.Sequence = "wan", 6 }, false},
	} {
		newer := old
		test.change(&newer)
		if got := newer.supersedes(old); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

func newRecords(t *testing.T) *Server {
	t.Helper()
	records, err := store.Open[attachment](t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &Server{records: records, locks: locks{held: map[string]*holder{}}}
}

func TestHostInterfaceNames(t *testing.T) {
	s := newRecords(t)
	for _, test := range []struct{ containerID, ifname, want string }{
		{"0123456789abcdef0123456789abcdef", "net1", "0123456789abc_0"},
		{"0123456789abcdef0123456789abcdef", "net2", "0123456789abc_1"},
		{"0123456789abcffffff", "net1", "0123456789abc_2"},
		{"short", "net1", "short_0"},
	} {
		a := &adding{attachment: attachment{ContainerID: test.containerID, IfName: test.ifname, NADKey: test.ifname}}
		if err := s.open(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if a.HostIfName != test.want {
			t.Errorf("%s %s: got %s, want %s", test.containerID, test.ifname, a.HostIfName, test.want)
		}
	}
}

func TestNewerSandboxTakesTheLeaseOver(t *testing.T) {
	s := newRecords(t)
	old := &adding{attachment: attachment{ContainerID: "c1", IfName: "net1", Pod: "web", NADKey: "ns/lan", Lease: &dhcp.Lease{MTU: 1234, HardwareAddr: hostMAC("c1", "net1")}}}
	newer := &adding{attachment: attachment{ContainerID: "c2", IfName: "net1", Pod: "web", NADKey: "ns/lan"}}
	other := &adding{attachment: attachment{ContainerID: "c3", IfName: "net1", Pod: "db", NADKey: "ns/lan"}}
	for _, a := range []*adding{old, newer, other} {
		if err := s.open(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if newer.Lease == nil || newer.Lease.MTU != 1234 {
		t.Errorf("the newer sandbox has the lease %+v", newer.Lease)
	}
	if other.Lease != nil {
		t.Errorf("another pod has the lease %+v", other.Lease)
	}
	if !s.superseded(old.attachment) || s.superseded(newer.attachment) || s.superseded(other.attachment) {
		t.Error("wrong attachments are superseded")
	}
}

func TestOneAttachmentHasOneInterface(t *testing.T) {
	s := newRecords(t)
	first := &adding{attachment: attachment{ContainerID: "c1", IfName: "net1", Namespace: "ns", Pod: "web", NADKey: "ns/lan"}}
	second := &adding{attachment: attachment{ContainerID: "c1", IfName: "net2", Namespace: "ns", Pod: "web", NADKey: "ns/lan"}}
	if err := s.open(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := s.open(t.Context(), second); err == nil || !strings.Contains(err.Error(), "net1") {
		t.Errorf("got error %v", err)
	}
}
