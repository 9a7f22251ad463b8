// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/rpc"
	"os/exec"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netns"
)

// bareCommand has this program serve the bare socket's leases: see serveBare.
const bareCommand = "serve-bare"

// servedBare is the bare socket, as a daemon that the CNI plugin dhcp can call: what the
// calls alone take is the difference to the bare socket itself.
func servedBare(self string) program {
	return func(socket, _ string) *exec.Cmd { return exec.Command(self, bareCommand, socket) }
}

// serveBare answers calls on a socket, until the process is ended.
func serveBare(socket string) error {
	pods, err := findPods(podCount)
	if err != nil {
		return err
	}
	service := &bareService{pods: map[string]*pod{}}
	for _, p := range pods {
		service.pods[p.netns] = p
	}
	server := rpc.NewServer()
	if err := server.RegisterName("DHCP", service); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return http.Serve(listener, server)
}

// bareService has the method that net/rpc calls.
type bareService struct {
	bare
	pods map[string]*pod // by netns
}

// Allocate acquires a lease.
func (s *bareService) Allocate(args *skel.CmdArgs, result *types100.Result) error {
	p, ok := s.pods[args.Netns]
	if !ok {
		return fmt.Errorf("there is no pod in netns %q", args.Netns)
	}
	addr, err := s.lease(context.Background(), p)
	if err != nil {
		return err
	}
	result.IPs = []*types100.IPConfig{{Address: net.IPNet{IP: addr, Mask: net.CIDRMask(16, 32)}}}
	return nil
}

// findPods finds pods that another process has made.
func findPods(n int) (pods []*pod, err error) {
	for i := range n {
		p := newPod(i)
		space, err := netns.GetFromPath(p.netns)
		if err != nil {
			return nil, fmt.Errorf("netns of pod %s: %w", p.name, err)
		}
		if err := errors.Join(p.open(space), space.Close()); err != nil {
			return nil, fmt.Errorf("interface of pod %s: %w", p.name, err)
		}
		pods = append(pods, p)
	}
	return pods, nil
}
