// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// newSouthbound prepares the southbound database.
func (l *Lab) newSouthbound() {
	l.southbound = &database{lab: l, dir: l.centralDir(), name: "ovnsb_db", command: l.centralCommand}
	l.SB = l.southbound.endpoint()
}

// startCentral starts the databases and ovn-northd, and returns when that has
// written to the southbound one.
func (l *Lab) startCentral(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.startNorthbound(gctx) })
	g.Go(func() error {
		if err := l.southbound.create(gctx, l.release.schemaSB()); err != nil {
			return err
		}
		return l.southbound.start(gctx)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if _, err := l.spawn(l.centralDir(), "ovn-northd", l.centralCommand(context.Background(), l.release.program("ovn-northd"),
		"--ovnnb-db="+l.NB, "--ovnsb-db="+l.SB, "--pidfile", logToConsole, noSyslog)); err != nil {
		return err
	}
	// In an empty southbound database ovn-controller 23.03 crashes.
	_, err := l.Nbctl(ctx, "--wait=sb", "sync")
	return err
}

func (l *Lab) centralDir() string { return filepath.Join(l.Dir, "central") }

// centralCommand is a command that runs beside the databases.
func (l *Lab) centralCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "OVN_RUNDIR="+l.centralDir(), "OVS_RUNDIR="+l.centralDir())
	return cmd
}
