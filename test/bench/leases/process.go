// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// process is a daemon under way.
type process struct{ *lab.Process }

// start starts a daemon that logs to a file.
func start(cmd *exec.Cmd, log string) (*process, error) {
	p, err := lab.StartProcess(cmd, log)
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
}

// kill ends the process without giving it a chance to do more, and returns when it has
// ended. One that ended before is an error.
func (p *process) kill() error {
	select {
	case <-p.Ended:
		return p.Failure()
	default:
	}
	p.Cmd.Process.Kill() // fails only when it has ended
	select {
	case <-p.Ended:
		return nil
	case <-time.After(startTime):
		return fmt.Errorf("%s does not end", p.Cmd)
	}
}

// usage is what a process has of the kernel.
type usage struct {
	threads, descriptors int
	memory               int // private, in KiB
}

func (p *process) usage() (usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.Cmd.Process.Pid))
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
			return usage{}, fmt.Errorf("memory of %s: %w", p.Cmd, err)
		}
		u.memory += kib
	}
	return u, nil
}
