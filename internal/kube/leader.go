// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Election is held by means of a Lease of coordination.k8s.io, which the leader
// renews.
type Election struct {
	// Namespace and Name are the Lease's.
	Namespace, Name string
	// Identity names this run of this process.
	Identity string
	// Duration is how long others wait for a leader that doesn't renew.
	Duration time.Duration
}

// ErrLeadershipLost says that the leader could not renew its Lease in time.
var ErrLeadershipLost = errors.New("leadership lost")

// Lead waits until this process is elected, runs lead, and returns what that
// returned; lead's context ends when the leadership is lost, and then the error
// is an ErrLeadershipLost. It returns when lead has, and can be called once for
// an Identity. The Lease can be another's a moment before lead has returned: what
// lead does has to be fenced.
func (c *Client) Lead(ctx context.Context, e Election, lead func(ctx context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	led := make(chan error, 1)
	var mu sync.Mutex
	begun, over := false, false // lead was called; it must not be called any more
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
			Client:     c.typed.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
		},
		LeaseDuration:   e.Duration,
		RenewDeadline:   e.Duration * 2 / 3,
		RetryPeriod:     e.Duration * 2 / 15,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				mu.Lock()
				late := over
				begun = !late
				mu.Unlock()
				if late {
					return
				}
				led <- lead(ctx)
				stop()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				c.log.Info("leader elected", "identity", identity, "self", identity == e.Identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(ctx)
	mu.Lock()
	over = true
	mu.Unlock()
	if !begun {
		return ctx.Err()
	}
	err = <-led
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return ErrLeadershipLost
	}
	return err
}

// Elected asks the API whether this process holds the election now.
func (c *Client) Elected(ctx context.Context, e Election) (bool, error) {
	lease, err := c.typed.CoordinationV1().Leases(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("lease %s/%s: %w", e.Namespace, e.Name, err)
	}
	holder := lease.Spec.HolderIdentity
	return holder != nil && *holder == e.Identity, nil
}
