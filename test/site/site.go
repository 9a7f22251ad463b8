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

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// Options say what a site is like.
type Options struct {
	Lab lab.Options
	// Bin is the folder that Build has filled.
	Bin string
	// NodeArgs and ControllerArgs are further flags of the daemons.
	NodeArgs, ControllerArgs []string
	// Standalone has one process on the only node be both daemons.
	Standalone bool
	// Kube has the objects in its API, if it is set; else they are in a
	// directory.
	Kube *kube.ControlPlane
	// RBAC is the manifest of the daemons' rights in the API.
	RBAC string
}

// Site is a running site.
type Site struct {
	Lab *lab.Lab
	// Objects is the directory of objects that all daemons share, unless these
	// are in the Kubernetes API.
	Objects string
	// NodeEnv is added to the environment of the node daemons that are started.
	NodeEnv []string

	options     Options
	objects     objects
	controllers []*daemon
	nodes       []*daemon
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
	if o.Kube == nil {
		s.objects = directory(s.Objects)
		err = os.Mkdir(s.Objects, 0o755)
	} else {
		s.objects = cluster{o.Kube}
		err = cluster{o.Kube}.install(ctx, l, o.RBAC)
	}
	if err != nil {
		return s, err
	}
	s.nodes = make([]*daemon, len(l.Nodes))
	for i := range l.Nodes {
		if err := s.StartNode(ctx, i); err != nil {
			return s, err
		}
	}
	if o.Standalone {
		return s, nil
	}
	return s, s.StartController()
}

// Stop ends the daemons and the lab.
func (s *Site) Stop() error {
	var errs []error
	for i := range s.nodes {
		errs = append(errs, s.StopNode(i, syscall.SIGTERM))
	}
	for i := range s.controllers {
		errs = append(errs, s.StopController(i, syscall.SIGTERM))
	}
	return errors.Join(errors.Join(errs...), s.Lab.Stop())
}

// StartController starts a controller; the first is number 0.
func (s *Site) StartController() error {
	source, err := s.objects.flags("ovn-dhcp-ipam-controller")
	if err != nil {
		return err
	}
	args := slices.Concat([]string{"controller", "--nb", s.Lab.NB, "--sb", s.Lab.SB, "--log-level", "debug"}, source, s.options.ControllerArgs)
	cmd := exec.Command(s.binary("ovn-dhcp-ipam"), args...)
	d, err := start(cmd, filepath.Join(s.Lab.Dir, fmt.Sprintf("controller%d.log", len(s.controllers))))
	if err != nil {
		return err
	}
	s.controllers = append(s.controllers, d)
	return nil
}

// StopController ends a controller by a signal and waits for its end. SIGTERM
// has to end it without an error. One that has ended before is no error.
func (s *Site) StopController(i int, sig syscall.Signal) error {
	d := s.controllers[i]
	s.controllers[i] = nil
	return d.stop(sig)
}

// SignalController sends a signal to a controller.
func (s *Site) SignalController(i int, sig syscall.Signal) error {
	return s.controllers[i].Cmd.Process.Signal(sig)
}

// ControllerEnded awaits that a controller ends by itself.
func (s *Site) ControllerEnded(ctx context.Context, i int) error {
	d := s.controllers[i]
	s.controllers[i] = nil
	return d.awaitEnd(ctx)
}

// StateDir is where the i-th node's daemon has its records.
func (s *Site) StateDir(i int) string { return filepath.Join(s.Lab.Nodes[i].Dir, "state") }

// StartNode starts the daemon of the i-th node and returns when it listens.
func (s *Site) StartNode(ctx context.Context, i int) (err error) {
	n := s.Lab.Nodes[i]
	command := []string{"node"}
	if s.options.Standalone {
		command = []string{"standalone", "--nb", s.Lab.NB}
	}
	source, err := s.objects.flags("ovn-dhcp-ipam-node")
	if err != nil {
		return err
	}
	args := slices.Concat(command, source,
		[]string{"--node-name", n.Name, "--cluster-id", "site", "--state-dir", s.StateDir(i), "--log-level", "debug"}, s.options.NodeArgs)
	// The daemon outlives ctx: it ends with StopNode, or with the lab.
	cmd := n.Command(context.WithoutCancel(ctx), s.binary("ovn-dhcp-ipam"), args...)
	cmd.Env = append(cmd.Env, s.NodeEnv...)
	if s.nodes[i], err = start(cmd, filepath.Join(n.Dir, "node.log")); err != nil {
		return err
	}
	// For people who want to enter the node.
	if err := os.WriteFile(filepath.Join(n.Dir, "node.pid"), fmt.Appendln(nil, s.nodes[i].Cmd.Process.Pid), 0o644); err != nil {
		return err
	}
	return s.nodes[i].await(ctx, func() bool {
		conn, err := net.Dial("unix", filepath.Join(n.Dir, "ovn-kubernetes/cni/ovn-cni-server.sock"))
		return err == nil && conn.Close() == nil
	})
}

// NodeEnded awaits that the daemon of the i-th node ends by itself.
func (s *Site) NodeEnded(ctx context.Context, i int) error {
	d := s.nodes[i]
	s.nodes[i] = nil
	return d.awaitEnd(ctx)
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
	for _, pattern := range []string{"*/node.log", "controller*.log"} {
		paths, _ := filepath.Glob(filepath.Join(s.Lab.Dir, pattern)) // the pattern is good
		for _, path := range paths {
			data, err := os.ReadFile(path)
			fmt.Fprintf(&b, "== %s (%v)\n%s", path, err, data)
		}
	}
	return b.String()
}

func (s *Site) binary(name string) string { return filepath.Join(s.options.Bin, name) }

// daemon is one process of the product.
type daemon struct{ *lab.Process }

func start(cmd *exec.Cmd, log string) (*daemon, error) {
	p, err := lab.StartProcess(cmd, log)
	if err != nil {
		return nil, err
	}
	return &daemon{p}, nil
}

// await waits until a condition holds; a daemon that ends before is an error.
func (d *daemon) await(ctx context.Context, ready func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", d.Cmd, ctx.Err())
		case <-d.Ended:
			return d.Failure()
		case <-tick.C:
		}
	}
	return nil
}

func (d *daemon) awaitEnd(ctx context.Context) error {
	select {
	case <-d.Ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s has not ended: %w", d.Cmd, ctx.Err())
	}
}

func (d *daemon) stop(sig syscall.Signal) error {
	if d == nil {
		return nil
	}
	if err := d.Cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.Ended:
	case <-time.After(time.Minute):
		return fmt.Errorf("%s did not end by %v", d.Cmd, sig)
	}
	if sig == syscall.SIGTERM && !d.Cmd.ProcessState.Success() {
		return d.Failure()
	}
	return nil
}
