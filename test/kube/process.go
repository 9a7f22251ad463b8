// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pollInterval is how often a condition is looked at that nothing announces.
const pollInterval = 10 * time.Millisecond

// endTimeout is how long a process may take to end after its signal.
const endTimeout = 30 * time.Second

// process is a server of the control plane.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process is reaped
}

// start starts a server that logs to a file, after what is there already.
func start(log, path string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
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

// await asks ready until it says that it has no objection. It gives up when ctx
// is done or the process has ended.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		objection := ready(ctx)
		if objection == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; at last: %w", p.name(), context.Cause(ctx), objection)
		case <-tick.C:
		}
	}
}

// stop ends the process by a signal and returns when it has ended. It is an
// error if it had ended before.
func (p *process) stop(s syscall.Signal) error {
	select {
	case <-p.ended:
		return p.failure()
	default:
	}
	p.cmd.Process.Signal(s) // fails only when it has ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("%s (pid %d) did not end within %v of %v", p.name(), p.cmd.Process.Pid, endTimeout, s)
	}
}

func (p *process) name() string { return filepath.Base(p.cmd.Path) }

// failure is the error of a process that has ended by itself.
func (p *process) failure() error {
	return fmt.Errorf("%s ended by itself (%v); its log ends:\n%s", p.name(), p.cmd.ProcessState, tail(p.log, 5))
}

// tail returns the last n lines of a file, indented, or why it can't.
func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "\t" + err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return "\t" + strings.Join(lines[max(0, len(lines)-n):], "\n\t")
}
