// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// containers is the container runtime of a node.
type containers struct {
	*installation
	network site.Network
}

// pod has a network namespace of the same name, which is also its sandbox.
type pod = *corev1.Pod

// calls are how long calls of the CNI plugin took, by sandbox.
type calls map[string]time.Duration

func (c calls) times() times.Times {
	var t times.Times
	for _, took := range c {
		t = append(t, took)
	}
	return t
}

// live has n pods come and go, some at a time, and times their ADDs and DELs.
// In between it calls meanwhile, which can be nil.
func (c *containers) live(ctx context.Context, prefix string, n, parallel int, meanwhile func([]pod) error) (adds, dels calls, err error) {
	pods := make([]pod, n)
	for i := range pods {
		pods[i] = c.Pod("default", fmt.Sprintf("%s-%d", prefix, i), 0, "")
		if err := c.PutPod(pods[i]); err != nil {
			return nil, nil, err
		}
		if _, err := c.Lab.AddNetns(pods[i].Name); err != nil {
			return nil, nil, err
		}
	}
	if adds, err = c.call(ctx, "ADD", pods, parallel); err != nil {
		return nil, nil, err
	}
	if meanwhile != nil {
		if err := meanwhile(pods); err != nil {
			return nil, nil, err
		}
	}
	if dels, err = c.call(ctx, "DEL", pods, parallel); err != nil {
		return nil, nil, err
	}
	for _, p := range pods {
		if err := c.Lab.DelNetns(p.Name); err != nil {
			return nil, nil, err
		}
		if err := c.Delete("pod", p.Namespace, p.Name); err != nil {
			return nil, nil, err
		}
	}
	return adds, dels, nil
}

// call makes a call for each pod.
func (c *containers) call(ctx context.Context, command string, pods []pod, parallel int) (calls, error) {
	took := make([]time.Duration, len(pods))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, p := range pods {
		g.Go(func() error {
			began := time.Now()
			_, err := c.CNI(ctx, 0, c.Attach(command, p, c.network, p.Name))
			took[i] = time.Since(began)
			if err != nil {
				return fmt.Errorf("%s of pod %s: %w", command, p.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := calls{}
	for i, p := range pods {
		all[p.Name] = took[i]
	}
	return all, nil
}

// patch times a patch of each pod.
func (c *containers) patch(ctx context.Context, pods []pod) (times.Times, error) {
	var t times.Times
	for _, p := range pods {
		began := time.Now()
		_, err := c.plane.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"bench":"yes"}}}`), metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
		t = append(t, time.Since(began))
	}
	return t, nil
}

// version times the plugin's VERSION, run as the calls are.
func (c *containers) version(ctx context.Context, plugin string) (times.Times, error) {
	var t times.Times
	for range addSamples {
		took, err := versionOf(c.Lab.Nodes[0].Command(ctx, plugin))
		if err != nil {
			return nil, err
		}
		t = append(t, took)
	}
	return t, nil
}
