// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package cnirpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// pods are network namespaces made for a test, whose names nobody else has.
type pods struct {
	t      *testing.T
	prefix string
	n      int
}

func newPods(t *testing.T) *pods {
	return &pods{t: t, prefix: fmt.Sprintf("%x%x", os.Getpid(), time.Now().UnixNano()&0xfffff)}
}

// bridge makes a bridge of the host, which ends with the test.
func (p *pods) bridge() string {
	p.n++
	name := fmt.Sprintf("%s-%d", p.prefix, p.n)
	ip(p.t, "link", "add", name, "type", "bridge")
	p.t.Cleanup(func() { ip(p.t, "link", "del", name) })
	return name
}

// netns makes a network namespace.
func (p *pods) netns() (name string, at place) {
	p.n++
	name = fmt.Sprintf("cnirpc-%s-%d", p.prefix, p.n)
	ip(p.t, "netns", "add", name)
	p.t.Cleanup(func() { ip(p.t, "netns", "del", name) })
	return name, place{Netns: "/run/netns/" + name, IfName: "net1"}
}

// veth makes a pod whose interface is one end of a pair; port is the other.
func (p *pods) veth() (at place, port string) {
	name, at := p.netns()
	p.n++
	port = fmt.Sprintf("%s-%d", p.prefix, p.n)
	ip(p.t, "link", "add", port, "type", "veth", "peer", "name", "net1", "netns", name)
	p.t.Cleanup(func() { ip(p.t, "link", "del", port) })
	return at, port
}

func newServer(t *testing.T) *Server {
	t.Helper()
	s, err := New(Config{StateDir: t.TempDir(), Timeout: 200 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.host.Close)
	return s
}

// TestWayOut finds by which device of the host a network can be reached.
func TestWayOut(t *testing.T) {
	s, p := newServer(t), newPods(t)
	bridge, master := p.bridge(), p.bridge()
	way := func(at place, configured uplink) string {
		device, port := s.wayOut(call{uplink: configured}, at)
		if port != (device == bridge || configured.Type == "bridge") {
			t.Errorf("%q is a bridge of the interface's port: %v", device, port)
		}
		return device
	}
	at, port := p.veth()
	if got := way(at, uplink{}); got != "" {
		t.Errorf("a veth whose other end is no port: %q", got)
	}
	ip(t, "link", "set", port, "master", bridge)
	if got := way(at, uplink{}); got != bridge {
		t.Errorf("a port of %s: %q", bridge, got)
	}
	if got := way(at, uplink{Type: "bridge", Bridge: "br7"}); got != "br7" {
		t.Errorf("configured br7: %q", got)
	}
	name, at := p.netns()
	ip(t, "link", "add", "net1", "link", master, "netns", name, "type", "macvlan")
	if got := way(at, uplink{Type: "macvlan"}); got != master {
		t.Errorf("a macvlan of %s: %q", master, got)
	}
	// The master is in the pod, and has an index that a device of the host has, too.
	name, at = p.netns()
	index := strings.SplitN(ip(t, "-o", "link", "show", master), ":", 2)[0]
	ip(t, "-n", name, "link", "add", "inner", "index", index, "type", "bridge")
	ip(t, "-n", name, "link", "add", "net1", "link", "inner", "type", "macvlan")
	if got := way(at, uplink{Type: "macvlan"}); got != "" {
		t.Errorf("a macvlan of a device of the pod: %q", got)
	}
	at.IfName = "net2"
	if got := way(at, uplink{}); got != "" {
		t.Errorf("an interface that is gone: %q", got)
	}
}

// TestClientOf: a client is what the interface, the configuration and the flags say.
func TestClientOf(t *testing.T) {
	s, p := newServer(t), newPods(t)
	s.cfg.Probe = true
	at, _ := p.veth()
	name := strings.TrimPrefix(at.Netns, "/run/netns/")
	ip(t, "-n", name, "link", "set", at.IfName, "address", "02:00:00:00:00:07")
	a := call{key: "k", id: "c/lan/net1", netns: at.Netns, ifname: at.IfName, conf: netConf{IPAM: &ipam{Priority: 7}}, uplink: uplink{Type: "bridge", Bridge: "br7"}}
	c, err := s.client(a, false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Link.Close()
	if got := c.Config.HardwareAddr.String(); got != "02:00:00:00:00:07" || !c.Config.Probe {
		t.Errorf("hardware address %s, probe %v", got, c.Config.Probe)
	}
	if want := `{"netns":"` + at.Netns + `","ifname":"net1","priority":7,"via":"br7","port":true}`; string(c.Data) != want {
		t.Errorf("data %s, want %s", c.Data, want)
	}
	if got := ip(t, "-n", name, "link", "show", at.IfName); !strings.Contains(got, ",UP") {
		t.Errorf("the interface is not up: %s", got)
	}
	if _, err := s.client(a, true); err == nil || !strings.Contains(err.Error(), "no lease") {
		t.Errorf("one that has a record, and no lease: %v", err)
	}
}

// TestAnotherInterface: an interface in the place of an attachment's is left alone.
func TestAnotherInterface(t *testing.T) {
	p := newPods(t)
	at, _ := p.veth()
	name := strings.TrimPrefix(at.Netns, "/run/netns/")
	held := dhcp.Lease{Addr: netip.MustParsePrefix("10.1.0.5/24"), HardwareAddr: []byte{2, 0, 0, 0, 0, 7}}
	for _, test := range []struct {
		mac, want string
	}{{"02:00:00:00:00:08", ""}, {"02:00:00:00:00:07", "10.1.0.5/24"}} {
		ip(t, "-n", name, "link", "set", at.IfName, "address", test.mac)
		err := at.configure("", held, func(d *device, _ place) error { return d.follow(dhcp.Lease{}, held, 0) })
		if err != nil {
			t.Fatal(err)
		}
		if got := ip(t, "-n", name, "-br", "-4", "addr", "show", at.IfName); strings.Contains(got, "10.1.0.5/24") != (test.want != "") {
			t.Errorf("interface with address %s: %s", test.mac, got)
		}
	}
}

// TestNothingIsLeftOpen: an Allocate in vain leaves no file descriptor.
func TestNothingIsLeftOpen(t *testing.T) {
	s, p := newServer(t), newPods(t)
	at, port := p.veth()
	ip(t, "link", "set", port, "up")
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	allocate := func() {
		ctx, cancel := context.WithTimeout(t.Context(), s.cfg.Timeout)
		defer cancel()
		args := &skel.CmdArgs{ContainerID: "c", Netns: at.Netns, IfName: at.IfName, StdinData: []byte(`{"name":"lan","type":"bridge","ipam":{"type":"dhcp"}}`)}
		if err := s.allocate(ctx, args, &types100.Result{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("without a DHCP server: %v", err)
		}
		s.closing.Wait()
	}
	allocate()
	before := open()
	for range 3 {
		allocate()
	}
	if after := open(); after != before {
		t.Errorf("%d file descriptors are open, before %d", after, before)
	}
	if s.keeper.Holds("c/lan/net1") {
		t.Error("there is a record of a lease that there is not")
	}
}
