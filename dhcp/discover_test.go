// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (s *stage) discover(key string, c Client) Lease {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), budget)
	defer cancel()
	lease, err := s.k.Discover(ctx, key, c)
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

// TestKeeperDiscover: a lease that is another's to keep is never prolonged nor told of.
// It is forgotten when it ends, in another life of the Keeper too. Of a machine that was
// started anew the interface is gone, which is told.
func TestKeeperDiscover(t *testing.T) {
	host := client()
	host.Netns = ""
	for name, test := range map[string]struct {
		client Client
		reboot bool
		told   []string
	}{
		"in a pod": {client: client()}, "on the host": {client: host},
		"on the host, rebooted": {client: host, reboot: true, told: []string{"a: 192.0.2.77 gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				lease := s.discover("a", test.client)
				if diff := cmp.Diff([]string{"discover", "select"}, s.took()); diff != "" {
					s.t.Fatal(diff)
				}
				if _, ok := s.k.Lease("a"); ok {
					t.Error("the Keeper takes the lease for its own")
				}
				if test.reboot {
					s.boot = "boot2"
				}
				s.restart()
				s.until(lease.Expires.Add(-time.Minute))
				if sent, told := s.took(), s.heard(); len(sent) != 0 || !slices.Equal(told, test.told) {
					s.t.Errorf("sent %v, told %v", sent, told)
				}
				s.until(lease.Expires.Add(time.Second))
				if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 {
					t.Errorf("it is still known after its end: %v, %v", kept, pending)
				}
				if sent, told := s.took(), s.heard(); len(sent)+len(told) != 0 {
					t.Errorf("at the end: sent %v, told %v", sent, told)
				}
			})
		})
	}
}

// TestKeeperDiscovered: what was discovered is given back, or left to the client.
func TestKeeperDiscovered(t *testing.T) {
	onStage(t, func(s *stage) {
		s.discover("a", client())
		s.took()
		s.restart()
		if err := s.k.Release(s.t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"release"}, s.took()); diff != "" {
			t.Errorf("Release: %s", diff)
		}
		s.discover("a", client())
		s.took()
		if err := s.k.Forget(s.t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if kept, pending := s.k.Keys(); len(kept)+len(pending) != 0 || len(s.took()) != 0 {
			t.Errorf("Forget: %v, %v", kept, pending)
		}
	})
}
