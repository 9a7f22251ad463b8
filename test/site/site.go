// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package site is a lab with the product installed: the controller, a node
// daemon on each node, and the CNI plugin, on a directory of objects. Tests and
// the demo act in it as the container runtime and as the cluster's users.
package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// Options say what a site is like.
type Options struct {
	Lab lab.Options
	// Bin is the folder that Build has filled.
	Bin string
	// NodeArgs and ControllerArgs are further flags of the daemons.
	NodeArgs, ControllerArgs []string
}

// Site is a running site.
type Site struct {
	Lab *lab.Lab
	// Objects is the directory of objects that all daemons share.
	Objects string

	options    Options
	controller *daemon
	nodes      []*daemon
}

// Build builds the product's commands into a folder, with further arguments of
// "go build".
func Build(ctx context.Context, folder string, args ...string) error {
	args = slices.Concat([]string{"build"}, args, []string{"-o", folder + "/", "github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cmd/..."})
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the commands: %w\n%s", err, out)
	}
	return nil
}

// Start starts the lab and the daemons in it; it returns when they can be used.
func Start(ctx context.Context, o Options) (s *Site, err error) {
	l, err := lab.Start(ctx, o.Lab)
	if err != nil {
		return nil, err
	}
	s = &Site{Lab: l, Objects: filepath.Join(l.Dir, "objects"), options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if err := os.Mkdir(s.Objects, 0o755); err != nil {
		return s, err
	}
	s.nodes = make([]*daemon, len(l.Nodes))
	for i := range l.Nodes {
		if err := s.StartNode(ctx, i); err != nil {
			return s, err
		}
	}
	return s, s.StartController()
}

// Stop ends the daemons and the lab.
func (s *Site) Stop() error {
	var errs []error
	for i := range s.nodes {
		errs = append(errs, s.StopNode(i, syscall.SIGTERM))
	}
	errs = append(errs, s.StopController(syscall.SIGTERM), s.Lab.Stop())
	return errors.Join(errs...)
}

// StartController starts the controller.
func (s *Site) StartController() (err error) {
	args := append([]string{"controller", "--objects", s.Objects, "--nb", s.Lab.NB, "--log-level", "debug"}, s.options.ControllerArgs...)
	cmd := exec.Command(s.binary("ovn-dhcp-ipam"), args...)
	s.controller, err = start(cmd, filepath.Join(s.Lab.Dir, "controller.log"))
	return err
}

// StopController ends the controller by a signal and waits for its end. SIGTERM
// has to end it without an error.
func (s *Site) StopController(sig syscall.Signal) error {
	d := s.controller
	s.controller = nil
	return d.stop(sig)
}

// StateDir is where the i-th node's daemon has its records.
func (s *Site) StateDir(i int) string { return filepath.Join(s.Lab.Nodes[i].Dir, "state") }

// StartNode starts the daemon of the i-th node and returns when it listens.
func (s *Site) StartNode(ctx context.Context, i int) (err error) {
	n := s.Lab.Nodes[i]
	args := append([]string{
		"node", "--objects", s.Objects, "--node-name", n.Name, "--cluster-id", "site", "--state-dir", s.StateDir(i), "--log-level", "debug",
	}, s.options.NodeArgs...)
	// The daemon outlives ctx: it ends with StopNode, or with the lab.
	cmd := n.Command(context.WithoutCancel(ctx), s.binary("ovn-dhcp-ipam"), args...)
	if s.nodes[i], err = start(cmd, filepath.Join(n.Dir, "node.log")); err != nil {
		return err
	}
	return s.nodes[i].await(ctx, func() bool {
		conn, err := net.Dial("unix", filepath.Join(n.Dir, "ovn-kubernetes/cni/ovn-cni-server.sock"))
		return err == nil && conn.Close() == nil
	})
}

// StopNode is StopController for the daemon of the i-th node.
func (s *Site) StopNode(i int, sig syscall.Signal) error {
	d := s.nodes[i]
	s.nodes[i] = nil
	return d.stop(sig)
}

// Logs are the logs of the product's daemons.
func (s *Site) Logs() string {
	var b strings.Builder
	paths, _ := filepath.Glob(filepath.Join(s.Lab.Dir, "*", "node.log")) // the pattern is good
	for _, path := range append(paths, filepath.Join(s.Lab.Dir, "controller.log")) {
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "== %s (%v)\n%s", path, err, data)
	}
	return b.String()
}

func (s *Site) binary(name string) string { return filepath.Join(s.options.Bin, name) }

// daemon is one process of the product.
type daemon struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // how it ended
}

func start(cmd *exec.Cmd, log string) (*daemon, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &daemon{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		d.err = cmd.Wait()
		close(d.ended)
	}()
	return d, nil
}

// await waits until a condition holds; a daemon that ends before is an error.
func (d *daemon) await(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", d.cmd, ctx.Err())
		case <-d.ended:
			log, _ := os.ReadFile(d.log)
			return fmt.Errorf("%s ended: %v\n%s", d.cmd, d.err, log)
		case <-tick.C:
		}
	}
	return nil
}

func (d *daemon) stop(sig syscall.Signal) error {
	if d == nil {
		return nil
	}
	if err := d.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		return fmt.Errorf("%s did not end by %v", d.cmd, sig)
	}
	if d.err != nil && sig == syscall.SIGTERM {
		return fmt.Errorf("%s: %w", d.cmd, d.err)
	}
	return nil
}
