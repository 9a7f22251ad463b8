// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"log/slog"
	"strings"
	"testing"

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
		if _, err := s.enroll(a); err != nil {
			t.Fatal(err)
		}
		if a.HostIfName != test.want {
			t.Errorf("%s %s: got %s, want %s", test.containerID, test.ifname, a.HostIfName, test.want)
		}
	}
}

func TestNewerSandboxTakesOver(t *testing.T) {
	s := newRecords(t)
	add := func(containerID, pod string) (*adding, *attachment) {
		t.Helper()
		a := &adding{attachment: attachment{ContainerID: containerID, IfName: "net1", Pod: pod, NADKey: "ns/lan"}}
		older, err := s.enroll(a)
		if err != nil {
			t.Fatal(err)
		}
		return a, older
	}
	first, older := add("c1", "web")
	if older != nil {
		t.Errorf("the first sandbox takes over from %v", older)
	}
	second, older := add("c2", "web")
	if older == nil || older.key() != first.key() {
		t.Errorf("the second sandbox takes over from %v", older)
	}
	third, older := add("c3", "web")
	if older == nil || older.key() != second.key() {
		t.Errorf("the third sandbox takes over from %v", older)
	}
	other, older := add("c4", "db")
	if older != nil {
		t.Errorf("another pod takes over from %v", older)
	}
	for a, want := range map[*adding]bool{first: true, second: true, third: false, other: false} {
		if got := s.superseded(a.attachment); got != want {
			t.Errorf("%s is superseded: %v", a.key(), got)
		}
	}
}

func TestOneAttachmentHasOneInterface(t *testing.T) {
	s := newRecords(t)
	first := &adding{attachment: attachment{ContainerID: "c1", IfName: "net1", Namespace: "ns", Pod: "web", NADKey: "ns/lan"}}
	second := &adding{attachment: attachment{ContainerID: "c1", IfName: "net2", Namespace: "ns", Pod: "web", NADKey: "ns/lan"}}
	if _, err := s.enroll(first); err != nil {
		t.Fatal(err)
	}
	if _, err := s.enroll(second); err == nil || !strings.Contains(err.Error(), "net1") {
		t.Errorf("got error %v", err)
	}
}
