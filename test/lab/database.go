// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// A database is an OVSDB file and the ovsdb-server that serves it.
type database struct {
	lab       *Lab
	dir, name string // its files are dir/NAME.db, .sock, .ctl, .pid and .log
	// command makes a command that runs where the server is to run.
	command func(ctx context.Context, name string, args ...string) *exec.Cmd

	mu     sync.Mutex
	daemon *daemon // nil while it is stopped
}

func (d *database) path(extension string) string {
	return filepath.Join(d.dir, d.name+extension)
}

// endpoint is where the server listens, "unix:PATH".
func (d *database) endpoint() string { return "unix:" + d.path(".sock") }

// create makes the file, with nothing in it.
func (d *database) create(ctx context.Context, schema string) error {
	_, err := output(d.lab.release.command(ctx, "ovsdb-tool", "create", d.path(".db"), schema))
	return err
}

// start starts the server and waits until it listens.
func (d *database) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.daemon != nil {
		return fmt.Errorf("start %s: it is running", d.daemon.name)
	}
	// Nothing but stop and the lab's end ends it.
	cmd := d.command(context.Background(), d.lab.release.program("ovsdb-server"), d.path(".db"), "--remote=p"+d.endpoint(),
		"--unixctl="+d.path(".ctl"), "--pidfile="+d.path(".pid"), logToConsole, noSyslog)
	var err error
	if d.daemon, err = d.lab.spawn(d.dir, d.name, cmd); err != nil {
		return err
	}
	return awaitSocket(ctx, d.path(".sock"))
}

// stop kills the server.
func (d *database) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.daemon == nil {
		return nil
	}
	d.daemon.signal(syscall.SIGKILL)
	if err := d.daemon.wait(); err != nil {
		return err
	}
	d.daemon = nil
	return nil
}
