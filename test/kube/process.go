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

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// pollInterval is how often a condition is looked at that nothing announces.
const pollInterval = 10 * time.Millisecond

// endTimeout is how long a process may take to end after its signal.
const endTimeout = 30 * time.Second

// process is a server of the control plane.
type process struct{ *lab.Process }

// start starts a server that logs to a file, after what is there already.
func start(log, path string, args ...string) (*process, error) {
	p, err := lab.StartProcess(exec.Command(path, args...), log)
	if err != nil {
		return nil, err
	}
	return &process{p}, nil
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
		case <-p.Ended:
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
	case <-p.Ended:
		return p.failure()
	default:
	}
	p.Cmd.Process.Signal(s) // fails only when it has ended
	select {
	case <-p.Ended:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("%s (pid %d) did not end within %v of %v", p.name(), p.Cmd.Process.Pid, endTimeout, s)
	}
}

func (p *process) name() string { return filepath.Base(p.Cmd.Path) }

// failure is the error of a process that has ended by itself.
func (p *process) failure() error {
	return fmt.Errorf("%s ended by itself (%v); its log ends:\n%s", p.name(), p.Cmd.ProcessState, tail(p.Log, 5))
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
