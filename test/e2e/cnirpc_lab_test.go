//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// host is a machine beside the lab's nodes with two devices on the physical network:
// eth0, and a port of the bridge cni0. It has the plugins of the CNI project, and our
// daemon for their plugin dhcp.
type host struct {
	world
	tools         string // folders with the plugins, in the form of PATH
	socket, state string
	// root is where the daemon finds the host's root directory; empty for where it is.
	root string
	// netnsDir comes before the paths of network namespaces that plugins are told.
	netnsDir string
	reserved string // the DHCP server's file of reserved addresses
	log      *os.File
	daemon   *exec.Cmd // nil if none is running
}

// quickRenewal has the server ask for renewals after three seconds.
var quickRenewal = []string{"--dhcp-option=option:T1,3", "--dhcp-option=option:T2,30"}

func newHost(t *testing.T, dnsmasqArgs ...string) *host {
	t.Helper()
	tools, err := kube.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := &host{
		tools:    tools,
		socket:   filepath.Join(dir, "cni", "dhcp.sock"),
		state:    filepath.Join(dir, "state"),
		reserved: filepath.Join(dir, "reserved"),
	}
	if err := os.WriteFile(h.reserved, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dnsmasqArgs = append(dnsmasqArgs, "--dhcp-hostsfile="+h.reserved, "--dhcp-option=option:dns-server,10.1.192.2", "--dhcp-option=option:domain-name,example.org")
	l := lab.New(t, lab.Options{DNSMasqArgs: dnsmasqArgs})
	h.world = world{Site: &site.Site{Lab: l}, t: t}
	h.log, err = os.Create(filepath.Join(dir, "log"))
	h.must(err)
	h.netns("host")
	for i, device := range []string{"eth0", "eth1"} {
		out, err := l.InPhys(t.Context(), "ip", "link", "add", fmt.Sprint("host", i), "up", "master", l.Phys.Bridge,
			"type", "veth", "peer", "name", device, "netns", filepath.Base(l.NetnsPath("host"))).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	h.in("host", "ip", "link", "add", "cni0", "up", "type", "bridge")
	h.in("host", "ip", "link", "set", "eth0", "up")
	h.in("host", "ip", "link", "set", "eth1", "up", "master", "cni0")
	t.Cleanup(func() {
		if h.daemon != nil {
			h.stop(syscall.SIGTERM)
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s\nthe DHCP server's:\n%s", h.logged(), l.DHCP.Log())
		}
		h.must(h.log.Close())
	})
	return h
}

func (h *host) logged() string {
	h.t.Helper()
	data, err := os.ReadFile(h.log.Name())
	h.must(err)
	return string(data)
}

// contained is a shell script that runs a command as from a container: with the host's
// root directory, and what is mounted there from then on, at containedRoot, and nothing in
// /run.
const (
	containedRoot = "/mnt/host"
	contained     = "mount -t tmpfs tmpfs /mnt && mkdir " + containedRoot + " && mount --rbind / " + containedRoot + ` && mount -t tmpfs tmpfs /run && exec "$@"`
)

// command is our daemon.
func (h *host) command(args ...string) *exec.Cmd {
	h.t.Helper()
	bin, err := binaries()
	h.must(err)
	args = append([]string{h.root + filepath.Join(bin, "ovn-dhcp-ipam"), "dhcp", "--socket", h.socket, "--state-dir", h.root + h.state, "--log-level", "debug"}, args...)
	if h.root != "" {
		args = slices.Concat([]string{"unshare", "--mount", "--propagation", "slave", "sh", "-c", contained, "sh"}, args, []string{"--host-prefix", h.root})
	}
	cmd := h.Lab.InNetns(context.Background(), "host", args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	return cmd
}

// start starts the daemon, and returns when it listens.
func (h *host) start(args ...string) {
	h.t.Helper()
	h.daemon = h.command(args...)
	h.must(h.daemon.Start())
	h.eventually(10*time.Second, func() string {
		conn, err := net.Dial("unix", h.socket)
		if err != nil {
			return err.Error()
		}
		h.must(conn.Close())
		return ""
	})
}

// stop ends the daemon by a signal.
func (h *host) stop(s syscall.Signal) {
	h.t.Helper()
	h.must(h.daemon.Process.Signal(s))
	err := h.daemon.Wait()
	h.daemon = nil
	if s == syscall.SIGTERM && err != nil {
		h.t.Errorf("the daemon ended with %v", err)
	}
}

func (h *host) find(program string) string {
	h.t.Helper()
	for _, dir := range filepath.SplitList(h.tools) {
		path := filepath.Join(dir, program)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	h.t.Fatalf("there is no %s in %s", program, h.tools)
	return ""
}

// conf is the configuration of a network of a plugin.
func (h *host) conf(plugin, device string, changes map[string]any) map[string]any {
	c := map[string]any{
		"cniVersion": "1.0.0", "name": "lan", "type": plugin, map[string]string{"macvlan": "master", "bridge": "bridge"}[plugin]: device,
		"ipam": map[string]any{
			"type": "dhcp", "daemonSocketPath": h.socket, "priority": 50,
			"provide": []any{map[string]any{"option": "host-name", "fromArg": "K8S_POD_NAME"}},
		},
	}
	for k, v := range changes {
		c[k] = v
	}
	return c
}

// plugin makes the command of a plugin's call, as a container runtime does.
func (h *host) plugin(command, program string, conf map[string]any, netns string) *exec.Cmd {
	h.t.Helper()
	data, err := json.Marshal(conf)
	h.must(err)
	cmd := h.Lab.InNetns(h.t.Context(), "host", h.find(program))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+netns, "CNI_NETNS="+h.netnsDir+h.Lab.NetnsPath(netns),
		"CNI_IFNAME=net1", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME="+netns, "CNI_PATH="+h.tools)
	cmd.Stdin = bytes.NewReader(data)
	return cmd
}

// call makes a plugin's call; the result is nil for a command that has none.
func (h *host) call(command string, conf map[string]any, netns string) (*types100.Result, error) {
	h.t.Helper()
	return run(h.plugin(command, conf["type"].(string), conf, netns))
}

func run(cmd *exec.Cmd) (*types100.Result, error) {
	out, err := cmd.Output()
	if err != nil {
		var cniError types.Error
		if json.Unmarshal(out, &cniError) == nil && cniError.Msg != "" {
			return nil, &cniError
		}
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if len(out) == 0 {
		return nil, nil
	}
	result, err := types100.NewResult(out)
	if err != nil {
		return nil, fmt.Errorf("result %s: %w", out, err)
	}
	return types100.GetResult(result)
}

// records are the daemon's.
func (h *host) records() []string {
	h.t.Helper()
	records, err := filepath.Glob(filepath.Join(h.state, "*", "*"))
	h.must(err)
	return records
}

// noRecords checks that the daemon has none.
func (h *host) noRecords() {
	h.t.Helper()
	if records := h.records(); len(records) > 0 {
		h.t.Errorf("records are left: %v", records)
	}
}

// captureReleases has tcpdump, with the arguments given, capture the first n RELEASEs. It
// returns when tcpdump is ready, and what it returns waits for the frames and describes
// them.
func (h *host) captureReleases(n int, in func(context.Context, string, ...string) *exec.Cmd, args ...string) func() string {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Second)
	h.t.Cleanup(cancel)
	// The device is to receive what it does otherwise: -p. The message's type is its first
	// option: 53, one byte, 7.
	args = append(args, "-p", "-nn", "-c", fmt.Sprint(n), "--immediate-mode", "udp dst port 67 and udp[248:2] = 0x3501 and udp[250] = 7")
	cmd := in(ctx, "tcpdump", args...)
	var frames bytes.Buffer
	cmd.Stdout = &frames
	stderr, err := cmd.StderrPipe()
	h.must(err)
	h.must(cmd.Start())
	messages := bufio.NewScanner(stderr)
	for ready := false; !ready; ready = strings.HasPrefix(messages.Text(), "listening on") {
		if !messages.Scan() {
			h.t.Fatalf("tcpdump has ended: %v", cmd.Wait())
		}
	}
	return func() string {
		for messages.Scan() { // until it has ended
		}
		if err := cmd.Wait(); err != nil {
			h.t.Fatalf("%d RELEASEs were awaited by tcpdump %s: %v; captured:\n%s", n, args, err, frames.String())
		}
		return frames.String()
	}
}

// TestCNIDHCPDaemon has plugins of the CNI project, and their plugin dhcp, get leases
// from our daemon, which ends in between in every way.
func TestCNIDHCPDaemon(t *testing.T) {
	h := newHost(t, quickRenewal...)
	h.start()
	// The plugin bridge removes the interface before it has the lease given back.
	for plugin, device := range map[string]string{"macvlan": "eth0", "bridge": "cni0"} {
		t.Run(plugin, func(t *testing.T) {
			h.t = t
			h.lifeOfALease(h.conf(plugin, device, nil), h.netns("of-"+plugin))
		})
	}
	h.t = t
	h.end()
}

// TestCNIDHCPHostPrefix has the daemon find the host's root directory elsewhere than the
// plugin does. It has neither the socket's directory nor the network namespaces' at their
// own paths, which go by a symbolic link.
func TestCNIDHCPHostPrefix(t *testing.T) {
	h := newHost(t, quickRenewal...)
	if target, err := os.Readlink("/var/run"); err != nil || target != "/run" && target != "../run" {
		t.Fatalf("/var/run is to be a link to /run: %q, %v", target, err)
	}
	h.root, h.netnsDir = containedRoot, "/var"
	h.start()
	h.lifeOfALease(h.conf("macvlan", "eth0", nil), h.netns("web"))
	h.end()
}

// TestCNIDHCPHostPrefixChanges has the daemon move out of its container: pods keep their
// leases.
func TestCNIDHCPHostPrefixChanges(t *testing.T) {
	h := newHost(t, quickRenewal...)
	h.root = containedRoot
	h.start()
	pod := h.attach(h.conf("macvlan", "eth0", nil), "web")
	h.end()
	h.root = ""
	h.start()
	acks := h.acks(pod.addr)
	h.eventually(10*time.Second, func() string {
		if h.acks(pod.addr) == acks {
			return "the lease was not renewed"
		}
		return ""
	})
	if n := h.releases(pod); n != 0 {
		t.Errorf("the lease was released %d times", n)
	}
	_, err := h.call("DEL", pod.conf, pod.netns)
	h.must(err)
	h.eventually(2*time.Second, func() string {
		if h.lease(pod.mac) != nil {
			return "the server still has the lease"
		}
		return ""
	})
	h.noRecords()
	h.end()
}

// end ends the daemon, which leaves no socket.
func (h *host) end() {
	h.t.Helper()
	h.stop(syscall.SIGTERM)
	if _, err := os.Stat(h.socket); !errors.Is(err, os.ErrNotExist) {
		h.t.Errorf("the socket is left: %v", err)
	}
}

func (h *host) lifeOfALease(conf map[string]any, netns string) {
	h.t.Helper()
	result, err := h.call("ADD", conf, netns)
	h.must(err)
	addr := result.IPs[0].Address
	if got := result.IPs[0].Gateway.String(); got != h.Lab.Phys.Gateway.String() {
		h.t.Errorf("gateway %s", got)
	}
	// The plugin macvlan has the DNS of its configuration in its result.
	if conf["type"] == "bridge" && (result.DNS.Domain != "example.org" || len(result.DNS.Nameservers) != 1) {
		h.t.Errorf("DNS %+v", result.DNS)
	}
	if got := h.in(netns, "ip", "route", "show", "default"); !strings.Contains(got, h.Lab.Phys.Gateway.String()+" dev net1") || !strings.Contains(got, "metric 50") {
		h.t.Errorf("default route %q", got)
	}
	h.in(netns, "ping", "-c1", "-W2", h.Lab.Phys.Gateway.String())
	mac := strings.Fields(h.in(netns, "ip", "-br", "link", "show", "net1"))[2]
	if h.lease(mac) == nil {
		h.t.Fatalf("the server has no lease for %s", mac)
	}
	if got, want := string(h.lease(mac).ClientID), "\x00"+netns+"/lan/net1"; got != want {
		h.t.Errorf("client id %q, want %q", got, want)
	}
	if got := h.lease(mac).Hostname; got != netns {
		h.t.Errorf("host name %q", got)
	}
	conf["prevResult"] = result
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_, err = h.call("CHECK", conf, netns)
		h.must(err)
		h.stop(s)
		h.start() // after SIGKILL there is a socket that nobody listens on
		acks := h.acks(addr.IP)
		h.eventually(10*time.Second, func() string {
			if h.acks(addr.IP) == acks {
				return "the lease was not renewed after " + s.String()
			}
			return ""
		})
	}
	_, err = h.call("CHECK", conf, netns)
	h.must(err)
	release := h.captureReleases(1, h.Lab.InPhys, "-i", h.Lab.Phys.Bridge)
	began := time.Now()
	_, err = h.call("DEL", conf, netns)
	h.must(err)
	h.eventually(2*time.Second-time.Since(began), func() string {
		if h.lease(mac) != nil {
			return "the server still has the lease"
		}
		return ""
	})
	if got, want := release(), addr.IP.String()+".68 > "+h.Lab.Phys.Gateway.String()+".67"; !strings.Contains(got, want) {
		h.t.Errorf("RELEASE was %q, want %q", got, want)
	}
	_, err = h.call("DEL", conf, netns)
	h.must(err)
	h.noRecords()
}

// acks counts the server's grants of an address.
func (h *host) acks(addr net.IP) int {
	return strings.Count(h.Lab.DHCP.Log(), "DHCPACK("+h.Lab.Phys.Bridge+") "+addr.String()+" ")
}

// TestCNIDHCPManyDels has the runtime repeat a DEL before the first has ended.
func TestCNIDHCPManyDels(t *testing.T) {
	h := newHost(t)
	h.start()
	conf := h.conf("macvlan", "eth0", nil)
	netns := h.netns("web")
	_, err := h.call("ADD", conf, netns)
	h.must(err)
	var wg sync.WaitGroup
	for range 50 {
		cmd := h.plugin("DEL", "dhcp", conf, netns)
		wg.Go(func() {
			if _, err := run(cmd); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	wg.Wait()
	h.eventually(2*time.Second, func() string {
		if n := strings.Count(h.Lab.DHCP.Log(), " DHCPRELEASE("); n != 1 {
			return fmt.Sprintf("the lease was released %d times", n)
		}
		return ""
	})
	h.noRecords()
}

// TestCNIDHCPAddressChanges has the server take an address away, and give another.
func TestCNIDHCPAddressChanges(t *testing.T) {
	h := newHost(t, quickRenewal...)
	h.start()
	netns := h.netns("web")
	result, err := h.call("ADD", h.conf("macvlan", "eth0", nil), netns)
	h.must(err)
	old := result.IPs[0].Address.String()
	// The kernel removes the route when the link goes down.
	h.in(netns, "ip", "addr", "add", "198.51.100.5/24", "dev", "net1")
	h.in(netns, "ip", "route", "add", "192.0.2.0/24", "via", "198.51.100.1")
	h.must(os.WriteFile(h.reserved, []byte(result.Interfaces[0].Mac+",10.1.192.50\n"), 0o644))
	h.must(h.Lab.DHCP.Stop())
	h.must(h.Lab.DHCP.Start(t.Context()))
	h.eventually(20*time.Second, func() string {
		addrs := h.in(netns, "ip", "-br", "-4", "addr", "show", "net1")
		route := h.in(netns, "ip", "route", "show", "default")
		if strings.Contains(addrs, old) || !strings.Contains(addrs, " 10.1.192.50/24") || !strings.Contains(route, "metric 50") {
			return fmt.Sprintf("addresses %q, default route %q", addrs, route)
		}
		return ""
	})
	h.in(netns, "ping", "-c1", "-W2", h.Lab.Phys.Gateway.String())
	if h.in(netns, "ip", "route", "show", "192.0.2.0/24") == "" {
		t.Error("the link was taken down")
	}
}

// TestCNIDHCPEndedAdd ends ADDs that get no answer: by a DEL, by the end of the caller,
// and by the end of the time.
func TestCNIDHCPEndedAdd(t *testing.T) {
	h := newHost(t)
	h.must(h.Lab.DHCP.Stop())
	h.start()
	netns := h.netns("web")
	h.in("host", "ip", "link", "add", "link", "eth0", "name", "net1", "netns", filepath.Base(h.Lab.NetnsPath(netns)), "type", "macvlan")
	conf := h.conf("macvlan", "eth0", nil)
	began := func() {
		t.Helper()
		h.eventually(10*time.Second, func() string {
			if !strings.Contains(h.in(netns, "ip", "link", "show", "net1"), ",UP") {
				return "the daemon has not set the interface up" // the last before it asks for a lease
			}
			return ""
		})
	}

	add := h.plugin("ADD", "dhcp", conf, netns)
	ended := make(chan error, 1)
	go func() {
		_, err := run(add)
		ended <- err
	}()
	began()
	_, err := run(h.plugin("DEL", "dhcp", conf, netns))
	h.must(err)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "ended by a DEL") {
		t.Errorf("the ADD ended with %v", err)
	}
	h.noRecords()

	h.in(netns, "ip", "link", "set", "net1", "down")
	add = h.plugin("ADD", "dhcp", conf, netns)
	h.must(add.Start())
	began()
	h.must(add.Process.Kill())
	_ = add.Wait() // it was killed
	h.eventually(5*time.Second, func() string {
		if strings.Count(h.logged(), "method=Allocate") < 2 {
			return "the ADD goes on without its caller"
		}
		return ""
	})
	h.noRecords()

	h.stop(syscall.SIGTERM)
	h.start("--timeout", "500ms")
	if _, err := run(h.plugin("ADD", "dhcp", conf, netns)); err == nil || !strings.Contains(err.Error(), "no lease on net1") {
		t.Errorf("the ADD ended with %v", err)
	}
	h.noRecords()
}

// TestCNIDHCPSocket has the daemon find a socket: of another daemon, and of systemd.
func TestCNIDHCPSocket(t *testing.T) {
	h := newHost(t)
	h.must(os.MkdirAll(filepath.Dir(h.socket), 0o700))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.socket, Net: "unix"})
	h.must(err)
	defer listener.Close()
	second := h.command()
	var said bytes.Buffer
	second.Stderr = &said
	if err := second.Run(); err == nil || !strings.Contains(said.String(), "another daemon listens") {
		t.Errorf("a daemon beside another: %v, %s", err, said.Bytes())
	}

	file, err := listener.File()
	h.must(err)
	defer file.Close()
	// Only the process itself knows its number.
	daemon := h.command()
	h.daemon = exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"`, "sh"}, daemon.Args...)...)
	h.daemon.Stdout, h.daemon.Stderr, h.daemon.ExtraFiles = h.log, h.log, []*os.File{file}
	h.must(h.daemon.Start())
	netns := h.netns("web")
	conf := h.conf("macvlan", "eth0", nil)
	_, err = h.call("ADD", conf, netns) // the socket's queue has it until the daemon is up
	h.must(err)
	_, err = h.call("DEL", conf, netns)
	h.must(err)
	h.stop(syscall.SIGTERM)
	if _, err := os.Stat(h.socket); err != nil {
		t.Errorf("systemd's socket: %v", err)
	}
}
