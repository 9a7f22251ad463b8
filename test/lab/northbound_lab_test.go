// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestCluster changes the leader of a northbound cluster three times, while a
// client writes.
func TestCluster(t *testing.T) {
	for _, r := range testReleases(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			testCluster(t, New(t, Options{OVN: r.ovn, NBServers: 3}))
		})
	}
}

func testCluster(t *testing.T, l *Lab) {
	ctx := t.Context()
	endpoints := strings.Split(l.NB, ",")
	if len(endpoints) != 3 {
		t.Fatalf("%d endpoints in %q", len(endpoints), l.NB)
	}
	kill := func(ctx context.Context) (int, error) {
		leader, err := l.NBLeader(ctx)
		if err != nil {
			return 0, err
		}
		if err := l.StopNB(leader); err != nil {
			return 0, err
		}
		defer func() {
			if err := l.StartNB(ctx, leader); err != nil {
				t.Error(err)
			}
		}()
		return l.NBLeader(ctx)
	}
	w := startWriter(ctx, l)
	for i, change := range []func(context.Context) (int, error){l.MoveNBLeader, kill, kill} {
		old, err := l.NBLeader(ctx)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		leader, err := change(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("change %d: from server %d to %d in %v", i+1, old, leader, time.Since(began).Round(time.Millisecond))
		// ovn-nbctl wants a leader.
		if _, err := l.Nbctl(ctx, "--db="+endpoints[leader], "show"); err != nil || leader == old {
			t.Errorf("change %d: server %d follows %d: %v", i+1, leader, old, err)
		}
		before := w.count.Load()
		if err := await(ctx, "writes", func() bool { return w.count.Load() >= before+3 }); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			nbctl(t, l, "--wait=sb", "sync") // ovn-northd has followed
		}
	}
	want := w.stop()
	t.Logf("%d writes", len(want))
	if got := switches(t, l); !slices.Equal(got, want) {
		t.Errorf("switches are %v, want %v", got, want)
	}
	if err := l.StartNB(ctx, 0); err == nil {
		t.Error("a running server was started again")
	}
}

// A writer adds switches, one after the other, until it is stopped.
type writer struct {
	count  atomic.Int64
	cancel context.CancelFunc
	done   chan []string
}

func startWriter(ctx context.Context, l *Lab) *writer {
	running, cancel := context.WithCancel(ctx)
	w := &writer{cancel: cancel, done: make(chan []string, 1)}
	go func() {
		var names []string
		for running.Err() == nil {
			name := fmt.Sprintf("net%04d", len(names))
			// A client can't know whether a leader that it has lost
			// had done its work.
			if _, err := l.Nbctl(ctx, "--may-exist", "ls-add", name); err == nil {
				names = append(names, name)
				w.count.Add(1)
			}
		}
		w.done <- names
	}()
	return w
}

// stop returns the names of all the switches.
func (w *writer) stop() []string {
	w.cancel()
	return <-w.done
}

// switches returns the sorted names of all logical switches.
func switches(t *testing.T, l *Lab) []string {
	t.Helper()
	out, err := l.Nbctl(t.Context(), "--bare", "--columns=name", "list", "Logical_Switch")
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Fields(out)
	slices.Sort(names)
	return names
}

func TestNBOnly(t *testing.T) {
	began := time.Now()
	l := New(t, Options{NBOnly: true})
	t.Logf("started in %v", time.Since(began).Round(time.Millisecond))
	if len(l.daemons) != 1 || l.SB != "" || len(l.Nodes) != 0 || l.DHCP != nil {
		t.Errorf("%d daemons, southbound database %q, %d nodes, dhcp server %v", len(l.daemons), l.SB, len(l.Nodes), l.DHCP)
	}
	nbctl(t, l, "ls-add", "net")

	// Its server can be away for a while.
	if err := l.StopNB(0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Nbctl(t.Context(), "--timeout=1", "show"); err == nil {
		t.Error("a stopped server has answered")
	}
	if err := l.StartNB(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if leader, err := l.NBLeader(t.Context()); leader != 0 || err != nil {
		t.Errorf("leader is %d, %v", leader, err)
	}
	if _, err := l.MoveNBLeader(t.Context()); err == nil {
		t.Error("the only server was moved")
	}
	if got := switches(t, l); !slices.Equal(got, []string{"net"}) {
		t.Errorf("after a restart: switches %q", got)
	}
}
