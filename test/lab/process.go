// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// A Process is a program that runs beside the lab's own and logs to a file.
type Process struct {
	Cmd *exec.Cmd
	// Log is the path of the file with its output.
	Log string
	// Ended is closed when the process is reaped. How it ended is then in
	// Cmd.ProcessState.
	Ended <-chan struct{}
}

// StartProcess starts a command whose output goes to the end of a file.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait() // how it ended is in ProcessState
		close(ended)
	}()
	return &Process{Cmd: cmd, Log: log, Ended: ended}, nil
}

// Failure is the error of a process that has ended, with its log.
func (p *Process) Failure() error {
	log, err := os.ReadFile(p.Log)
	if err != nil {
		log = []byte(err.Error())
	}
	return fmt.Errorf("%s ended: %v\n%s", p.Cmd, p.Cmd.ProcessState, log)
}

// Guard is ctx that ends with the process: what is waited for would never come.
func (p *Process) Guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.Ended:
			cancel(p.Failure())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
