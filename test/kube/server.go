// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The ports of the control plane at its address.
const (
	apiPort      = 6443
	etcdPort     = 2379
	etcdPeerPort = 2380
)

// writeKeys writes what kube-apiserver is given as files.
func (c *ControlPlane) writeKeys() error {
	server, err := c.authority.server(c.address)
	if err != nil {
		return err
	}
	tokens, err := newSigningKey()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": c.CA, "server.crt": server.cert, "server.key": server.key, "tokens.key": tokens,
	} {
		if err := os.WriteFile(c.file(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// file is the path of a file in the control plane's directory.
func (c *ControlPlane) file(name string) string { return filepath.Join(c.Dir, name) }

func (c *ControlPlane) etcdURL(port uint16) string {
	return fmt.Sprintf("http://%v", netip.AddrPortFrom(c.address, port))
}

// startEtcd starts etcd and waits until it takes requests.
func (c *ControlPlane) startEtcd(ctx context.Context) error {
	path, err := find(c.bin, "etcd")
	if err != nil {
		return err
	}
	client, peer := c.etcdURL(etcdPort), c.etcdURL(etcdPeerPort)
	c.etcd, err = start(c.file("etcd.log"), path,
		"--name=test", "--data-dir="+c.file("etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=test="+peer,
		"--unsafe-no-fsync", "--log-level=warn",
		// Its own vote is all that it waits for.
		"--heartbeat-interval=10", "--election-timeout=100",
	)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	c.log.Debug("server started", "name", "etcd", "pid", c.etcd.Cmd.Process.Pid)
	return c.etcd.await(ctx, func(ctx context.Context) error { return getOK(ctx, client+"/readyz") })
}

// StartAPIServer starts kube-apiserver, at first by Start and again after
// StopAPIServer, and returns when the API can be used.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	path, err := find(c.bin, "kube-apiserver")
	if err != nil {
		return err
	}
	c.apiserver, err = start(c.file("kube-apiserver.log"), path,
		"--etcd-servers="+c.etcdURL(etcdPort),
		"--bind-address="+c.address.String(), "--advertise-address="+c.address.String(), fmt.Sprintf("--secure-port=%d", apiPort),
		"--tls-cert-file="+c.file("server.crt"), "--tls-private-key-file="+c.file("server.key"),
		"--client-ca-file="+c.file("ca.crt"), "--authorization-mode=RBAC", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.file("tokens.key"), "--service-account-signing-key-file="+c.file("tokens.key"),
		// Else it waits for a minute for the end of watches, which it does not end.
		"--shutdown-watch-termination-grace-period=10s",
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
		// It would refuse pods: nobody makes the service account of a namespace.
		"--disable-admission-plugins=ServiceAccount",
	)
	if err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	c.log.Debug("server started", "name", "kube-apiserver", "pid", c.apiserver.Cmd.Process.Pid)
	return c.apiserver.await(ctx, c.ready)
}

// ready returns nil if the API is complete.
func (c *ControlPlane) ready(ctx context.Context) error {
	if err := c.Client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	// The server makes them soon after its first start.
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if _, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// StopAPIServer ends kube-apiserver as in an orderly shutdown, in which it ends
// all watches. What it has stored stays for the next StartAPIServer.
func (c *ControlPlane) StopAPIServer() error { return c.stopAPIServer(syscall.SIGTERM) }

func (c *ControlPlane) stopAPIServer(s syscall.Signal) error {
	p := c.apiserver
	c.apiserver = nil
	if p == nil {
		return nil
	}
	return p.stop(s)
}

// getOK is an error unless a GET of the URL has status 200.
func getOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}
