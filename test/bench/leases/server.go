// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// startTime is how long a server or daemon may take until it listens.
const startTime = 10 * time.Second

// server is the network's dnsmasq. Its files are in memory, so that it isn't what is
// measured.
type server struct {
	running *process // nil if there is none
}

// restart starts the server without any leases.
func (s *server) restart(ctx context.Context, args ...string) error {
	if err := s.stop(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dnsmasq-")
	if err != nil {
		return err
	}
	pidFile := filepath.Join(dir, "pid")
	cmd := exec.Command("dnsmasq", append([]string{
		"--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--port=0",
		"--interface=" + bridgeName, "--bind-dynamic",
		"--dhcp-range=10.66.1.0,10.66.254.254,255.255.0.0,3600", "--dhcp-lease-max=20000", "--dhcp-authoritative",
		"--no-ping", // else an offer waits for three seconds
		"--dhcp-leasefile=" + filepath.Join(dir, "leases"), "--log-facility=" + filepath.Join(dir, "log"),
		"--pid-file=" + pidFile,
	}, args...)...)
	if s.running, err = start(cmd, filepath.Join(dir, "output")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	ctx, unguard := s.running.Guard(ctx)
	defer unguard()
	return await(ctx, "dnsmasq", time.Millisecond, func() (bool, error) {
		pid, err := os.ReadFile(pidFile)
		// It writes the file when its sockets are open.
		return err == nil && string(bytes.TrimSpace(pid)) == strconv.Itoa(cmd.Process.Pid), nil
	})
}

func (s *server) stop() error {
	if s.running == nil {
		return nil
	}
	running := s.running
	s.running = nil
	return running.kill()
}
