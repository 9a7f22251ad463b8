// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is a daemon under way.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it is reaped
}

// start starts a daemon that logs to a file.
func start(cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		cmd.Wait() // how it ended is in ProcessState
		close(p.ended)
	}()
	return p, nil
}

// guard is ctx that ends with the process: what is waited for would never come.
func (p *process) guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.ended:
			log, _ := os.ReadFile(p.log)
			cancel(fmt.Errorf("%s ended: %v\n%s", p.cmd, p.cmd.ProcessState, log))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// kill ends the process without giving it a chance to do more, and returns when it has
// ended. One that ended before is an error.
func (p *process) kill() error {
	select {
	case <-p.ended:
		log, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s ended by itself: %v\n%s", p.cmd, p.cmd.ProcessState, log)
	default:
	}
	p.cmd.Process.Kill() // fails only when it has ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(startTime):
		return fmt.Errorf("%s does not end", p.cmd)
	}
}

// usage is what a process has of the kernel.
type usage struct {
	threads, descriptors int
	memory               int // private, in KiB
}

func (p *process) usage() (usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return usage{}, err
	}
	descriptors, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return usage{}, err
	}
	maps, err := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
	if err != nil {
		return usage{}, err
	}
	u := usage{threads: len(threads), descriptors: len(descriptors)}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "Private_") || len(fields) < 2 {
			continue
		}
		kib, err := strconv.Atoi(fields[1])
		if err != nil {
			return usage{}, fmt.Errorf("memory of %s: %w", p.cmd, err)
		}
		u.memory += kib
	}
	return u, nil
}
