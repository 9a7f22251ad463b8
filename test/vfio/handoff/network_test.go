// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

package handoff

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/vfio/card"
)

// network is a network namespace with the other end of the card's wire and a
// DHCP server.
type network struct {
	t   *testing.T
	dir string
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	const netns = "far"
	n := &network{t: t, dir: t.TempDir()}
	run(t, "ip", "netns", "add", netns)
	run(t, "ip", "link", "set", card.Far, "netns", netns)
	t.Cleanup(func() {
		run(t, "ip", "-n", netns, "link", "set", card.Far, "netns", "1")
		run(t, "ip", "netns", "del", netns)
	})
	run(t, "ip", "-n", netns, "addr", "add", "192.0.2.1/24", "dev", card.Far)
	run(t, "ip", "-n", netns, "link", "set", card.Far, "up")
	server := exec.Command("nsenter", "--net=/run/netns/"+netns, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null",
		"--user=root", "--port=0", "--interface="+card.Far, "--bind-interfaces", "--no-ping", "--dhcp-authoritative", "--log-dhcp",
		"--dhcp-range=192.0.2.100,192.0.2.200,255.255.255.0,1h", "--pid-file", "--dhcp-leasefile="+n.file("leases"), "--log-facility="+n.file("log"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = server.Wait() // it says that it was killed
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !strings.Contains(n.log(), "sockets bound"); {
		select {
		case <-deadline:
			t.Fatalf("dnsmasq doesn't listen; its log:\n%s", n.log())
		case <-tick.C:
		}
	}
	return n
}

func (n *network) file(name string) string { return filepath.Join(n.dir, name) }

func (n *network) log() string { return n.read("log") }

// leased tells whether the server has a lease of addr for mac.
func (n *network) leased(mac net.HardwareAddr, addr netip.Addr) bool {
	n.t.Helper()
	return strings.Contains(n.read("leases"), " "+mac.String()+" "+addr.String()+" ")
}

func (n *network) read(name string) string {
	n.t.Helper()
	data, err := os.ReadFile(n.file(name))
	if err != nil && !os.IsNotExist(err) {
		n.t.Fatal(err)
	}
	return string(data)
}
