// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// startTimeout bounds a start on a busy machine; it takes a few seconds.
const startTimeout = 2 * time.Minute

// Options say where a control plane is. The zero value is good for a test.
type Options struct {
	// Dir is where keys, data, kubeconfigs and logs are. It is made by Start,
	// so it must not exist, and removed by Stop. "" means a private directory.
	Dir string
	// Bin is where etcd and kube-apiserver are: folders in the form of PATH.
	// "" means those of Tools.
	Bin string
	// Log gets a line for each thing that is started. nil means none.
	Log *slog.Logger
}

// A ControlPlane is a running control plane. Its methods may be called at the
// same time, but StartAPIServer, StopAPIServer and Stop only one by one.
type ControlPlane struct {
	// Dir is the absolute path of the control plane's directory.
	Dir string
	// Endpoint is the URL of the API, good in this process's network namespace
	// and in the nodes of Connect.
	Endpoint string
	// CA is the certificate of the authority that has issued the server's, in
	// PEM.
	CA []byte
	// Admin is a client configuration with all rights and without a limit of
	// its rate; Client and Dynamic are such clients.
	Admin   *rest.Config
	Client  *kubernetes.Clientset
	Dynamic *dynamic.DynamicClient

	log       *slog.Logger
	bin       string
	address   netip.Addr
	authority *authority
	etcd      *process
	apiserver *process // nil while it is stopped
	stop      func() error

	mu      sync.Mutex // of what follows
	devices []string   // our ends of the links to nodes
}

// Start starts a control plane and returns when the API can be used. ctx bounds
// the start only. The process must have been isolated by lab.Main or
// lab.Isolate.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	c, err := begin(ctx, o)
	if err != nil && c != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, err
}

// New starts a control plane for a test, and stops it when the test ends. If
// the test has failed by then, the ends of the servers' logs are in its output.
// The test fails at once if the control plane can't be started.
func New(t testing.TB, o Options) *ControlPlane {
	t.Helper()
	c, err := begin(t.Context(), o)
	if c != nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(c.logTails())
			}
			if err := c.Stop(); err != nil {
				t.Errorf("stop control plane: %v", err)
			}
		})
	}
	if err != nil {
		t.Fatalf("start control plane: %v", err)
	}
	return c
}

// begin returns a control plane that is to be stopped also if starting it
// failed, unless it is nil.
func begin(ctx context.Context, o Options) (*ControlPlane, error) {
	if err := isolated(); err != nil {
		return nil, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not done within %v", startTimeout))
	defer cancel()

	c := &ControlPlane{log: o.Log, bin: o.Bin}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if c.bin == "" {
		if c.bin, err = Tools(ctx); err != nil {
			return nil, err
		}
	}
	if c.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	if c.Dir, err = makeDir(o.Dir); err != nil {
		return nil, err
	}
	c.stop = sync.OnceValue(c.stopAll)
	if err := c.up(ctx); err != nil {
		return c, err
	}
	c.log.Info("control plane is up", "dir", c.Dir, "endpoint", c.Endpoint, "took", time.Since(began).Round(time.Millisecond))
	return c, nil
}

// isolated says no where the control plane's address would be one of the host,
// and its servers could outlive the program.
func isolated() error {
	ours, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	if first, err := os.Stat("/proc/1/exe"); err != nil || !os.SameFile(ours, first) {
		return errors.New("a control plane is started by a process that has called lab.Main or lab.Isolate first")
	}
	return nil
}

// makeDir makes a directory that is empty.
func makeDir(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("/run", "kube")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o755)
}

func (c *ControlPlane) up(ctx context.Context) (err error) {
	address, err := takeAddress()
	if err != nil {
		return err
	}
	c.address = address
	c.Endpoint = fmt.Sprintf("https://%v", netip.AddrPortFrom(address, apiPort))
	c.CA = c.authority.pem()
	if err := c.writeKeys(); err != nil {
		return err
	}
	if err := c.newClients(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// newClients makes the clients with all rights.
func (c *ControlPlane) newClients() (err error) {
	if c.Admin, err = c.Config("admin", "system:masters"); err != nil {
		return err
	}
	c.Admin.QPS = -1
	if c.Client, err = kubernetes.NewForConfig(c.Admin); err != nil {
		return err
	}
	c.Dynamic, err = dynamic.NewForConfig(c.Admin)
	return err
}

// Stop ends kube-apiserver and then etcd, disconnects the nodes and removes the
// directory. The error tells what could not be ended or removed, and which
// server had ended by itself before. Calls after the first return the same.
func (c *ControlPlane) Stop() error { return c.stop() }

func (c *ControlPlane) stopAll() error {
	// What the servers would tidy up goes with the directory.
	errs := []error{c.stopAPIServer(syscall.SIGKILL)}
	if c.etcd != nil {
		errs = append(errs, c.etcd.stop(syscall.SIGKILL))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	errs = append(errs, disconnect(c.devices))
	if c.address.IsValid() {
		errs = append(errs, giveAddress(c.address))
	}
	return errors.Join(append(errs, os.RemoveAll(c.Dir))...)
}

// logTails returns the ends of all log files.
func (c *ControlPlane) logTails() string {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "*.log")) // the pattern is good
	var b strings.Builder
	for _, path := range logs {
		fmt.Fprintf(&b, "%s ends:\n%s\n", filepath.Base(path), tail(path, 20))
	}
	return b.String()
}
