// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// pollInterval is how often a condition is looked at that nothing announces.
const pollInterval = 5 * time.Millisecond

// endTimeout is how long a process may take to end after its signal.
const endTimeout = 5 * time.Second

// All daemons of OVS and OVN log to standard error, which is their log file:
// it then has their last words too.
const (
	logToConsole = "-vconsole:info"
	noSyslog     = "-vsyslog:off"
)

// A daemon is a process that runs until it is told to end.
type daemon struct {
	name     string // as in messages: "node1/ovs-vswitchd"
	process  *os.Process
	stopping atomic.Bool
	ended    chan struct{} // closed when the process is reaped
}

// spawn starts cmd as a daemon that logs to dir/NAME.log. If it ends before it
// is told to, the lab has failed.
func (l *Lab) spawn(dir, name string, cmd *exec.Cmd) (*daemon, error) {
	path := filepath.Join(dir, name+".log")
	name = filepath.Join(filepath.Base(dir), name)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	l.log.Debug("daemon started", "name", name, "pid", cmd.Process.Pid)
	d := &daemon{name: name, process: cmd.Process, ended: make(chan struct{})}
	go func() {
		cmd.Wait() // how it ended is in ProcessState
		if !d.stopping.Load() {
			l.fail(fmt.Errorf("%s ended by itself (%v); its log ends:\n%s", name, cmd.ProcessState, tail(path, 5)))
		}
		close(d.ended)
	}()
	l.mu.Lock()
	l.daemons = append(l.daemons, d)
	l.mu.Unlock()
	return d, nil
}

// signal tells the daemon to end.
func (d *daemon) signal(s syscall.Signal) {
	d.stopping.Store(true)
	d.process.Signal(s) // fails only when it has ended
}

// wait returns when the daemon has ended.
func (d *daemon) wait() error {
	select {
	case <-d.ended:
		return nil
	case <-time.After(endTimeout):
		return fmt.Errorf("%s (pid %d) did not end within %v", d.name, d.process.Pid, endTimeout)
	}
}

// await looks at ready until it is true. It gives up when ctx is done.
func await(ctx context.Context, what string, ready func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !ready() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// awaitSocket waits until somebody listens at the unix socket.
func awaitSocket(ctx context.Context, path string) error {
	return await(ctx, path, func() bool {
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// output runs a tool that is done soon, and returns its standard output without
// the last newline. The error has what the tool said.
func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
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
