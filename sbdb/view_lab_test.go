// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package sbdb

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// events are what a view told.
type events struct {
	mu     sync.Mutex
	bound  map[string]int // by the external_id pod
	taught []string
	synced int
	woken  chan struct{}
}

func (e *events) note(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	select {
	case e.woken <- struct{}{}:
	default:
	}
}

// await waits until holds is true, which is looked at after each event.
func (e *events) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		e.mu.Lock()
		ok := holds()
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-e.woken:
		case <-deadline:
			t.Fatalf("waited in vain for: %s (%+v)", what, e)
		}
	}
}

// startView runs a view until the test ends.
func startView(t *testing.T, endpoint string) (*View, *events) {
	t.Helper()
	v, err := New(Config{Endpoint: endpoint, PortKey: "ours", PortValue: "yes", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e := &events{bound: map[string]int{}, woken: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- v.Run(ctx,
			func() { e.note(func() { e.synced++ }) },
			func(ids map[string]string) { e.note(func() { e.bound[ids["pod"]]++ }) },
			func(router, mac string) { e.note(func() { e.taught = append(e.taught, router+" "+mac) }) })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != context.Canceled {
			t.Errorf("Run: %v", err)
		}
	})
	return v, e
}

func TestView(t *testing.T) {
	for _, version := range []string{"", "25.03"} {
		t.Run("OVN"+version, func(t *testing.T) {
			var o lab.Options
			if version != "" {
				dir, err := lab.OVN25()
				if err != nil {
					t.Fatal(err)
				}
				o.OVN = dir
			}
			testView(t, lab.New(t, o))
		})
	}
}

func testView(t *testing.T, l *lab.Lab) {
	nbctl := func(args ...string) { run(t, l.Nbctl, args...) }
	v, e := startView(t, l.SB)
	e.await(t, "a session", func() bool { return e.synced > 0 })
	nbctl("ls-add", "sw",
		"--", "lsp-add", "sw", "p1", "--", "set", "logical_switch_port", "p1", "external_ids:ours=yes", "external_ids:pod=a",
		"--", "lsp-add", "sw", "other", "--", "set", "logical_switch_port", "other", "external_ids:ours=no", "external_ids:pod=b")
	e.await(t, "p1 is in the database", func() bool { return e.bound["a"] > 0 })
	if b, known := v.Binding("p1"); !known || b.Bound() {
		t.Errorf("p1 before a chassis has it: %+v, known %v", b, known)
	}
	run(t, l.Nodes[0].Vsctl, "add-port", "br-int", "if1", "--", "set", "interface", "if1", "type=internal", "external_ids:iface-id=p1",
		"--", "add-port", "br-int", "if2", "--", "set", "interface", "if2", "type=internal", "external_ids:iface-id=other")
	e.await(t, "p1 is bound", func() bool { b, _ := v.Binding("p1"); return b.Bound() })
	if b, _ := v.Binding("p1"); !b.On("node1") || b.On("node2") {
		t.Errorf("p1 is on %+v", b)
	}
	nbctl("--wait=hv", "sync")
	_, known := v.Binding("other")
	e.note(func() {
		if known || e.bound["b"] > 0 {
			t.Error("a port of others is in the view")
		}
	})

	// Two routers that learn, of which one is ours, and 1,000 rows of the other.
	nbctl("lr-add", "r1", "--", "lrp-add", "r1", "r1p", "0a:58:00:00:00:01", "0.0.0.1/0",
		"--", "lr-add", "r2", "--", "lrp-add", "r2", "r2p", "0a:58:00:00:00:02", "0.0.0.2/0")
	nbctl("--wait=sb", "sync")
	datapath := func(port string) string {
		return run(t, l.Sbctl, "--bare", "--columns=datapath", "find", "port_binding", "logical_port="+port)
	}
	others := datapath("r2p")
	var rows []string
	for i := range 1000 {
		rows = append(rows, "--", "create", "mac_binding", "logical_port=r2p", "datapath="+others,
			fmt.Sprintf("ip=10.1.%d.%d", i/250, i%250), `mac="0a:00:00:00:00:02"`)
	}
	run(t, l.Sbctl, rows...)
	learn := func(ip, mac string) {
		run(t, l.Sbctl, "create", "mac_binding", "logical_port=r1p", "datapath="+datapath("r1p"), "ip="+ip, `mac="`+mac+`"`)
	}
	const guest = "0a:00:00:00:00:01"
	learn("10.0.0.7", guest)
	if got := v.Lessons("r1p", guest); len(got) != 0 {
		t.Errorf("before r1p is a learner it has %v", got)
	}
	v.SetLearners(map[string]bool{"r1p": true})
	e.await(t, "what was learned before", func() bool { return slices.Contains(e.taught, "r1p "+guest) })
	learn("10.0.0.8", guest)
	e.await(t, "what is learned now", func() bool { return len(v.Lessons("r1p", guest)) == 2 })
	learn("10.0.0.9", "0a:00:00:00:00:03")
	e.await(t, "another guest", func() bool { return slices.Contains(e.taught, "r1p 0a:00:00:00:00:03") })

	// The same again is an event again once it was removed.
	for _, l := range v.Lessons("r1p", guest) {
		if l.IP == netip.MustParseAddr("10.0.0.7") {
			if err := v.Unlearn(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if err := v.Unlearn(t.Context(), l); err != nil {
				t.Errorf("a second time: %v", err)
			}
		}
	}
	if got := v.Lessons("r1p", guest); len(got) != 1 || got[0].IP != netip.MustParseAddr("10.0.0.8") {
		t.Errorf("after removal r1p has %v", got)
	}
	e.note(func() { e.taught = nil })
	learn("10.0.0.7", guest)
	e.await(t, "the first address again", func() bool { return slices.Contains(e.taught, "r1p "+guest) })
	e.note(func() {
		for _, told := range e.taught {
			if told != "r1p "+guest {
				t.Errorf("the view told of %s", told)
			}
		}
	})

	v.SetLearners(nil)
	if got := v.Lessons("r1p", guest); len(got) != 0 {
		t.Errorf("r1p is no learner and has %v", got)
	}

	run(t, l.Nodes[0].Vsctl, "del-port", "if1")
	e.await(t, "p1 is unbound", func() bool { b, known := v.Binding("p1"); return known && !b.Bound() })
	nbctl("lsp-del", "p1")
	e.await(t, "p1 is gone", func() bool { _, known := v.Binding("p1"); return !known })
}

func run(t *testing.T, ctl func(ctx context.Context, args ...string) (string, error), args ...string) string {
	t.Helper()
	out, err := ctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}
