// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// program is one of those that are called: the command that listens on socket and has its
// files, if any, in dir.
type program func(socket, dir string) *exec.Cmd

func ours(path string) program {
	return func(socket, dir string) *exec.Cmd {
		return exec.Command(path, "dhcp", "--socket", socket, "--state-dir", filepath.Join(dir, "state"))
	}
}

// upstream waits a second for an answer. By default it waits ten, so that a lost frame
// would be all that is measured.
func upstream(path string) program {
	return func(socket, _ string) *exec.Cmd {
		return exec.Command(path, "daemon", "-timeout", "1s", "-socketpath", socket)
	}
}

// daemon is a daemon that is called as the CNI plugin dhcp does it.
type daemon struct {
	*process
	socket string
}

// start starts a daemon without any leases, and returns when it listens.
func (b *bench) start(ctx context.Context, p program) (*daemon, error) {
	dir, err := os.MkdirTemp(b.dir, "daemon-")
	if err != nil {
		return nil, err
	}
	d := &daemon{socket: filepath.Join(dir, "socket")}
	if d.process, err = start(p(d.socket, dir), filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	ctx, unguard := d.Guard(ctx)
	defer unguard()
	err = await(ctx, "the daemon's socket", time.Millisecond, func() (bool, error) {
		conn, err := net.Dial("unix", d.socket)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// close leaves the files until all is measured: ext4 takes its time to pass over the
// inodes that were freed of late, and the next daemon would pay for that.
func (d *daemon) close() error { return d.kill() }

func (d *daemon) acquire(ctx context.Context, p *pod) error {
	_, err := d.allocate(ctx, p)
	return err
}

// allocate makes the plugin's call for an ADD.
func (d *daemon) allocate(ctx context.Context, p *pod) (*net.IPNet, error) {
	fail := func(err error) (*net.IPNet, error) {
		log, _ := os.ReadFile(d.Log)
		return nil, fmt.Errorf("DHCP.Allocate for pod %s: %w; the daemon's log ends:\n%s", p.name, err, log[max(0, len(log)-2000):])
	}
	c, err := rpc.DialHTTP("unix", d.socket)
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	args := &skel.CmdArgs{
		ContainerID: p.name, Netns: p.netns, IfName: podDevice,
		StdinData: []byte(`{"cniVersion":"1.0.0","name":"lan","type":"bridge","bridge":"` + bridgeName + `","ipam":{"type":"dhcp"}}`),
	}
	var result types100.Result
	call := c.Go("DHCP.Allocate", args, &result, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	switch {
	case call.Error != nil:
		return fail(call.Error)
	case len(result.IPs) != 1:
		return fail(fmt.Errorf("%d addresses", len(result.IPs)))
	}
	return &result.IPs[0].Address, nil
}
