// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nbdb

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func elected(context.Context) (bool, error) { return true, nil }

// fence is what the database says of the only fence.
func (s server) fence(t *testing.T) string {
	t.Helper()
	get := func(key string) string {
		return s.nbctl(t, "--bare", "get", "Address_Set", setName("ovn-dhcp-ipam:Fence:x"), "external_ids:"+key)
	}
	return strings.ReplaceAll(fmt.Sprintf("%s %s of %s", get("ovn-dhcp-ipam/leader"), get("ovn-dhcp-ipam/term"), get("ovn-dhcp-ipam/owner")), `"`, "")
}

func (s server) wantFence(t *testing.T, want string) {
	t.Helper()
	if got := s.fence(t); got != want {
		t.Errorf("the fence is %s, want %s", got, want)
	}
}

// transactions is how many the database has made.
func (s server) transactions(t *testing.T) int {
	t.Helper()
	return strings.Count(command(t, "ovsdb-tool", "show-log", filepath.Join(s.dir, "nb.db")), "record ")
}

// wantSuperseded waits for the client to give up.
func (r *running) wantSuperseded(t *testing.T) {
	t.Helper()
	select {
	case <-r.done:
		if !errors.Is(r.err, ErrSuperseded) {
			t.Errorf("the client has ended with %v", r.err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the client goes on")
	}
}

func TestFence(t *testing.T) {
	srv := startServer(t)
	a := start(t, srv, &Fence{Name: "x", Leader: "a", Elected: elected})
	first := a.next(t)
	srv.wantFence(t, "a 1 of fence")
	mustApply(t, first, "network/net", networkRows())

	// What a has in hand when it falls asleep is of no use when it wakes.
	want := Rows{Ports: []Port{wantPort()}}
	late, err := Diff(testKey, first.Rows(testKey, want), want)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, srv, &Fence{Name: "x", Leader: "b", Elected: elected})
	b.next(t)
	srv.wantFence(t, "b 2 of fence")
	before := srv.transactions(t)
	if err := first.Apply(t.Context(), late); !errors.Is(err, ErrSuperseded) || errors.Is(err, ErrRefused) {
		t.Errorf("a writes while b leads: error %v", err)
	}
	// Nor is a new session, which does not take the fence back.
	a.fail <- errors.New("session lost")
	again := a.next(t)
	err = again.Apply(t.Context(), late)
	if !errors.Is(err, ErrSuperseded) {
		t.Errorf("a writes in a new session while b leads: error %v", err)
	}
	a.fail <- err
	a.wantSuperseded(t)
	if got := srv.transactions(t); got != before {
		t.Errorf("a has made %d transactions while b leads", got-before)
	}

	// A new session of b needs no transaction to go on.
	b.fail <- errors.New("session lost")
	second := b.next(t)
	if got := srv.transactions(t); got != before {
		t.Errorf("b's new session took %d transactions", got-before)
	}
	mustApply(t, second, testKey, Rows{Ports: []Port{wantPort()}})

	// Other keys of the row, and other fences, make no difference.
	row := setName("ovn-dhcp-ipam:Fence:x")
	srv.nbctl(t, "set", "Address_Set", row, "external_ids:theirs=1")
	start(t, srv, &Fence{Name: "y", Leader: "a", Elected: elected}).next(t)
	mustApply(t, second, testKey, Rows{})
	start(t, srv, &Fence{Name: "x", Leader: "c", Elected: elected}).next(t)
	srv.wantFence(t, "c 3 of fence")
	if got := srv.nbctl(t, "--bare", "get", "Address_Set", row, "external_ids:theirs"); got != `"1"` {
		t.Errorf("the foreign key of the fence is %s", got)
	}
}

func TestFenceIsGone(t *testing.T) {
	srv := startServer(t)
	r := start(t, srv, &Fence{Name: "x", Leader: "a", Elected: elected})
	s := r.next(t)
	srv.nbctl(t, "destroy", "Address_Set", setName("ovn-dhcp-ipam:Fence:x"))
	if _, err := apply(t, s, "network/net", networkRows()); !errors.Is(err, ErrSuperseded) {
		t.Errorf("write without fence: error %v", err)
	}
	start(t, srv, &Fence{Name: "x", Leader: "b", Elected: elected}).next(t)
	srv.wantFence(t, "b 1 of fence")
}

// A leader that sleeps before it has taken the fence can't take it from the
// next one, whatever it was told before.
func TestAsleepBeforeTheFence(t *testing.T) {
	for name, exists := range map[string]bool{"fence exists": true, "no fence": false} {
		t.Run(name, func(t *testing.T) {
			srv := startServer(t)
			if exists {
				start(t, srv, &Fence{Name: "x", Leader: "former", Elected: elected}).next(t)
			}
			asked, answers := make(chan struct{}, 10), make(chan bool)
			a := start(t, srv, &Fence{Name: "x", Leader: "a", Elected: func(ctx context.Context) (bool, error) {
				asked <- struct{}{}
				select {
				case answer := <-answers:
					return answer, nil
				case <-ctx.Done():
					return false, ctx.Err()
				}
			}})
			<-asked
			start(t, srv, &Fence{Name: "x", Leader: "b", Elected: elected}).next(t)
			want := srv.fence(t)
			answers <- true // which was so when it was asked
			select {
			case answers <- false:
			case <-time.After(20 * time.Second):
				t.Fatal("a does not ask again")
			}
			a.wantSuperseded(t)
			srv.wantFence(t, want)
		})
	}
}

func TestElectionThatDoesNotAnswer(t *testing.T) {
	srv := startServer(t)
	answers := make(chan error, 2)
	answers <- errors.New("no answer")
	answers <- nil
	start(t, srv, &Fence{Name: "x", Leader: "a", Elected: func(context.Context) (bool, error) {
		err := <-answers
		return err == nil, err
	}}).next(t)
	srv.wantFence(t, "a 1 of fence")
}

// When the answer to the taking is lost, the fence is found to be taken.
func TestFenceThatIsOurs(t *testing.T) {
	srv := startServer(t)
	start(t, srv, &Fence{Name: "x", Leader: "a", Elected: elected}).next(t)
	before := srv.transactions(t)
	s := start(t, srv, &Fence{Name: "x", Leader: "a", Elected: func(context.Context) (bool, error) {
		t.Error("the election is asked")
		return false, nil
	}}).next(t)
	if got := srv.transactions(t) - before; got != 0 {
		t.Errorf("%d transactions", got)
	}
	mustApply(t, s, "network/net", networkRows())
}
