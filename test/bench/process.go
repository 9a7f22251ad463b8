// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// endTimeout is how long a process may take to end after its signal.
const endTimeout = 30 * time.Second

// process is a daemon of the product.
type process struct{ *lab.Process }

// start starts a daemon that logs to a file.
func start(cmd *exec.Cmd, log string) (*process, error) {
	p, err := lab.StartProcess(cmd, log)
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
}

// stop ends the process in an orderly way and returns when it has ended.
func (p *process) stop() error {
	p.Cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-p.Ended:
	case <-time.After(endTimeout):
		return fmt.Errorf("%s did not end within %v", p.Cmd, endTimeout)
	}
	if !p.Cmd.ProcessState.Success() {
		return p.Failure()
	}
	return nil
}

// cpu is the processor time that the process has used so far, to 10 ms.
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// After the name, which can hold anything, come the third field and the
	// others; utime and stime are the 14th and the 15th, proc_pid_stat(5).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// peakMemory is the most memory that the process has had, in MiB.
func (p *process) peakMemory() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("the kernel does not tell the memory of %s", p.Cmd)
}
