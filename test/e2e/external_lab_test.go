//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// TestExternalDHCP has the leases kept by the CNI dhcp plugin's own daemon.
func TestExternalDHCP(t *testing.T) {
	plugin := tool(t, "dhcp")
	w := newWorld(t, site.Options{NodeArgs: []string{"--dhcp", plugin}})
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	before := w.snapshot(0)
	w.refused(0, call, 999, "acquire lease", plugin) // nobody runs the daemon
	w.nothingLeft(0, before)

	daemon := w.Lab.Nodes[0].Command(t.Context(), plugin, "daemon", "-timeout", "1s")
	w.must(daemon.Start())
	t.Cleanup(func() {
		if err := daemon.Process.Kill(); err != nil {
			t.Error(err)
		}
		daemon.Wait() // it was killed
	})
	socket := filepath.Join(w.Lab.Nodes[0].Dir, "cni", "dhcp.sock")
	w.eventually(5*time.Second, func() string {
		if err := exec.CommandContext(t.Context(), "test", "-S", socket).Run(); err != nil {
			return "the daemon does not listen"
		}
		return ""
	})
	r := w.cni(0, call)
	addr, mac := r.IPs[0].Address, r.Interfaces[1].Mac
	if l := w.lease(mac); l == nil || l.Addr.String() != addr.IP.String() {
		t.Errorf("lease %+v, want %s", l, addr.IP)
	}
	if e, ok := w.entry(pod, "default/lan"); !ok || len(e.Addrs) != 1 || e.Addrs[0].String() != addr.String() {
		t.Errorf("annotation entry %+v", e)
	}
	if got := w.in(netns, "ip", "-o", "-4", "addr", "show", "net1"); !strings.Contains(got, addr.String()) {
		t.Errorf("address: %s, want %s", got, addr.String())
	}
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	if again := w.cni(0, call).IPs[0].Address; again.String() != addr.String() {
		t.Errorf("a repeated ADD gives %s", again.String())
	}
	// That daemon's RELEASE is from 0.0.0.0, and dnsmasq ignores it.
	call.Command = "DEL"
	w.cni(0, call)
	w.must(w.Delete("pod", "default", "web"))
	w.nothingLeft(0, before)
}

// tool is the path of a program that test/tools builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	folders, err := kube.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range filepath.SplitList(folders) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not in %s", name, folders)
	return ""
}
