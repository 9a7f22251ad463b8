// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
)

// A vswitch is an Open vSwitch, with the userspace datapath, in a namespace.
type vswitch struct {
	lab *Lab
	ns  *namespace
	dir string // the run directory
	db  *database
}

func (l *Lab) newVswitch(ns *namespace, dir string) *vswitch {
	v := &vswitch{lab: l, ns: ns, dir: dir}
	v.db = &database{lab: l, dir: dir, name: "db", command: v.command}
	return v
}

// start starts Open vSwitch with a configuration, arguments of ovs-vsctl, and
// returns when these bridges and their ports are there.
func (v *vswitch) start(ctx context.Context, bridges []string, config ...string) error {
	if err := v.db.create(ctx, v.lab.release.schemaOVS()); err != nil {
		return err
	}
	if err := v.db.start(ctx); err != nil {
		return err
	}
	if _, err := v.vsctl(ctx, append([]string{"--no-wait"}, config...)...); err != nil {
		return err
	}
	if _, err := v.spawn("ovs-vswitchd"); err != nil {
		return err
	}
	// The switch listens for OpenFlow after it has made the devices.
	for _, bridge := range bridges {
		if err := awaitSocket(ctx, filepath.Join(v.dir, bridge+".mgmt")); err != nil {
			return err
		}
	}
	return nil
}

// spawn starts a daemon that works on the database.
func (v *vswitch) spawn(name string) (*daemon, error) {
	// It outlives whoever starts it.
	cmd := v.command(context.Background(), v.lab.release.program(name), v.db.endpoint(), "--pidfile", logToConsole, noSyslog)
	return v.lab.spawn(v.dir, name, cmd)
}

// env is what the tools need in their environment to be the right ones and to
// find the daemons.
func (v *vswitch) env() []string {
	return append([]string{"OVS_RUNDIR=" + v.dir, "OVN_RUNDIR=" + v.dir}, v.lab.release.env()...)
}

// command is a command in the namespace, with env in its environment.
func (v *vswitch) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := v.ns.command(ctx, name, args...)
	cmd.Env = append(os.Environ(), v.env()...)
	return cmd
}

// vsctl runs ovs-vsctl on the database and returns its output.
func (v *vswitch) vsctl(ctx context.Context, args ...string) (string, error) {
	return output(v.lab.release.command(ctx, "ovs-vsctl", append([]string{"--db=" + v.db.endpoint(), toolTimeout}, args...)...))
}
