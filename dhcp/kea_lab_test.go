// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package dhcp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kea is a Kea server on a network's bridge, with leases of a few seconds.
type kea struct {
	n   *network
	dir string
	cmd *exec.Cmd
}

// newKea starts Kea with the address that it reserves for the client, and T1, T2 and the
// end in seconds.
func (n *network) newKea(reserved string, t1, t2, end int) *kea {
	n.t.Helper()
	k := &kea{n: n, dir: n.t.TempDir()}
	n.log = filepath.Join(k.dir, "log")
	k.start(reserved, t1, t2, end)
	n.t.Cleanup(k.stop)
	return k
}

func (k *kea) start(reserved string, t1, t2, end int) {
	k.n.t.Helper()
	logger := func(name, severity string) any {
		return map[string]any{"name": name, "severity": severity, "debuglevel": 40,
			"output_options": []any{map[string]any{"output": k.n.log, "flush": true}}}
	}
	config, err := json.Marshal(map[string]any{"Dhcp4": map[string]any{
		"interfaces-config": map[string]any{"interfaces": []string{"br0"}, "dhcp-socket-type": "raw"},
		"lease-database":    map[string]any{"type": "memfile", "name": k.leaseFile(), "lfc-interval": 0},
		"renew-timer":       t1, "rebind-timer": t2, "valid-lifetime": end, "authoritative": true, "calculate-tee-times": false,
		"subnet4": []any{map[string]any{
			"id": 1, "subnet": "192.0.2.0/24", "pools": []any{map[string]any{"pool": "192.0.2.100 - 192.0.2.199"}},
			"reservations": []any{map[string]any{"hw-address": clientHW.String(), "ip-address": reserved}},
		}},
		"loggers": []any{logger("kea-dhcp4", "INFO"), logger("kea-dhcp4.packets", "DEBUG")},
	}})
	if err != nil {
		k.n.t.Fatal(err)
	}
	file := filepath.Join(k.dir, "config.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		k.n.t.Fatal(err)
	}
	before := k.started()
	k.cmd = exec.Command("ip", "netns", "exec", k.n.server, "kea-dhcp4", "-c", file)
	k.cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+k.dir, "KEA_LOCKFILE_DIR=none", "KEA_DHCP_DATA_DIR="+k.dir)
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := k.cmd.Start(); err != nil {
		k.n.t.Fatal(err)
	}
	k.n.await("Kea serves", 10*time.Second, func() bool { return k.started() > before })
}

func (k *kea) started() int { return strings.Count(k.n.read(k.n.log), "DHCP4_STARTED") }

// stop kills Kea, if it runs.
func (k *kea) stop() {
	if k.cmd == nil {
		return
	}
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
	k.cmd = nil
	_ = os.Remove(filepath.Join(k.dir, "config.kea-dhcp4.pid"))
}

func (k *kea) leaseFile() string { return filepath.Join(k.dir, "leases.csv") }

// holds tells whether the last that the lease file says of an address is that it is
// leased: "address,hwaddr,client_id,valid_lifetime,expire,..."; a released one has a
// lifetime of 0.
func (k *kea) holds(addr string) bool {
	holds := false
	for _, line := range strings.Split(k.n.read(k.leaseFile()), "\n") {
		if f := strings.Split(line, ","); len(f) > 4 && f[0] == addr {
			holds = f[3] != "0"
		}
	}
	return holds
}

// received counts the messages that Kea has received from one address to another.
func (k *kea) received(from, to string) int {
	want := fmt.Sprintf("received buffer from %s:68 to %s:67 over interface br0", from, to)
	return strings.Count(k.n.read(k.n.log), want)
}

// TestKeeperKeaLab renews from the leased address to the server, follows a NAK to another
// address, outlives a server that is away until after the end, and gives back.
func TestKeeperKeaLab(t *testing.T) {
	n := newNetwork(t)
	server := n.newKea("192.0.2.100", 1, 4, 6)
	l := n.keep()
	l.acquire()
	n.await("two renewals", 8*time.Second, func() bool { return server.received("192.0.2.100", "192.0.2.1") >= 2 })
	if got := server.received("192.0.2.100", "255.255.255.255"); got != 0 {
		t.Errorf("%d rebinds while the server answers", got)
	}

	// The reservation changes: Kea refuses the address and gives another one.
	server.stop()
	server.start("192.0.2.150", 1, 4, 6)
	n.await("the new address in use", 15*time.Second, func() bool { return l.has("192.0.2.150/24") && !l.has("192.0.2.100/24") })
	if !strings.Contains(n.read(n.log), "DHCPNAK (type 6)") {
		t.Error("Kea has sent no NAK")
	}

	// No server until after the end of the lease, and then there is one again.
	server.stop()
	n.await("the address lost", 15*time.Second, func() bool { return !l.has("192.0.2.150/24") })
	server.start("192.0.2.150", 1, 4, 6)
	n.await("the address back", 30*time.Second, func() bool { return l.has("192.0.2.150/24") })

	if err := l.k.Release(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	n.await("the lease given back", 2*time.Second, func() bool { return !server.holds("192.0.2.150") })
	if got := n.icmp(l.tap); got != 0 {
		t.Errorf("the client sent %d ICMP messages", got)
	}
}

// TestKeeperRebindsKeaLab: the server comes back under another address. The renewals go to
// the old one in vain, the broadcast that leaves from the leased address is answered, and
// the next renewals go to the new one.
func TestKeeperRebindsKeaLab(t *testing.T) {
	n := newNetwork(t)
	server := n.newKea("192.0.2.100", 1, 3, 8)
	l := n.keep()
	l.acquire()
	server.stop()
	n.ip("-n", n.server, "addr", "del", "192.0.2.1/24", "dev", "br0")
	n.ip("-n", n.server, "addr", "add", "192.0.2.2/24", "dev", "br0")
	server.start("192.0.2.100", 1, 3, 8)
	n.await("a rebind", 8*time.Second, func() bool { return server.received("192.0.2.100", "255.255.255.255") > 0 })
	n.await("a renewal by the new server", 5*time.Second, func() bool { return server.received("192.0.2.100", "192.0.2.2") > 0 })
	if lease, _ := l.k.Lease("a"); lease.Server.String() != "192.0.2.2" || !l.has("192.0.2.100/24") {
		t.Errorf("lease of %v from %v", lease.Addr, lease.Server)
	}
}
