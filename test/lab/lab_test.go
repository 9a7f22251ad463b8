// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// childEnv makes this binary a program with a lab instead of a test: "hold",
// "panic" or "exit" is what it does when its lab is up.
const childEnv = "LAB_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		child(mode)
	}
	Main(m)
}

// child is a program that has a lab with a pod in the directory of its first
// argument, and tells on standard output when it is up.
func child(mode string) {
	if err := Isolate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l, err := Start(context.Background(), Options{Dir: os.Args[1]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if _, err := l.AddNetns("pod"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := l.InNetns(context.Background(), "pod", "sleep", "infinity").Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("up")
	switch mode {
	case "panic":
		panic("on purpose")
	case "exit":
		os.Exit(7)
	}
	select {}
}

// startChild runs this binary as a child program, and returns when its lab is
// up. This process is isolated itself, so all that the child makes and leaves
// can be seen here, and nothing else happens meanwhile.
func startChild(t *testing.T, mode, dir string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", dir)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
		cmd.Wait()
		t.Fatalf("child said %q (%v), and:\n%s", line, err, &stderr)
	}
	return cmd, &stderr
}

// hostDir is a directory for a lab that is seen by this process and by its
// children that isolate themselves.
func hostDir(t *testing.T) string {
	t.Helper()
	if err := unix.Mount("tmpfs", "/mnt", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/mnt", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return "/mnt/lab"
}

// takeSnapshot lists everything a lab could leave behind.
func takeSnapshot(t *testing.T) []string {
	t.Helper()
	var s []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // has ended
		}
		// pid (name) state; an ended process that init has not reaped is Z.
		name, rest, _ := strings.Cut(string(data), ") ")
		if !strings.HasPrefix(rest, "Z") {
			s = append(s, "process "+name+")")
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for mount := range strings.Lines(string(mounts)) {
		s = append(s, "mount "+mount)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		s = append(s, "device "+l.Name)
	}
	for _, pattern := range []string{"/run/*", "/run/*/*", "/var/lib/ovn/*", "/var/lib/openvswitch/*", "/proc/self/fd/*"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			s = append(s, "file "+f)
		}
	}
	return s
}

// added returns what is there now and was not before. The host's own mounts
// come and go.
func added(t *testing.T, before []string) []string {
	t.Helper()
	return slices.DeleteFunc(takeSnapshot(t), func(s string) bool { return slices.Contains(before, s) })
}

// awaitNothingAdded waits until nothing is there that was not before.
func awaitNothingAdded(t *testing.T, before []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := await(ctx, "everything to be gone", func() bool { return len(added(t, before)) == 0 }); err != nil {
		t.Errorf("%v; left:\n%s", err, strings.Join(added(t, before), "\n"))
	}
}

func TestTwoLabsLeaveNothing(t *testing.T) {
	// The first process to be started adds the runtime's own descriptors.
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	before := takeSnapshot(t)
	labs := make([]*Lab, 2)
	var g errgroup.Group
	for i := range labs {
		g.Go(func() (err error) {
			began := time.Now()
			labs[i], err = Start(t.Context(), Options{Nodes: 2})
			t.Logf("lab %d of 2 with 2 nodes started in %v", i+1, time.Since(began).Round(time.Millisecond))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	var commands []*exec.Cmd
	for i, l := range labs {
		if _, err := l.Nbctl(t.Context(), "ls-add", fmt.Sprint("only", i)); err != nil {
			t.Error(err)
		}
		if _, err := l.AddNetns("pod"); err != nil {
			t.Error(err)
		}
		// The lab ends it.
		cmd := l.Nodes[1].Command(t.Context(), "sleep", "infinity")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		commands = append(commands, cmd)
	}
	for i, l := range labs {
		if got, err := l.Nbctl(t.Context(), "--bare", "--columns=name", "list", "Logical_Switch"); err != nil || got != fmt.Sprint("only", i) {
			t.Errorf("lab %d has switches %q, %v", i, got, err)
		}
		began := time.Now()
		if err := l.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		t.Logf("stopped in %v", time.Since(began).Round(time.Millisecond))
		if err := l.Stop(); err != nil {
			t.Errorf("stop again: %v", err)
		}
		if err := commands[i].Wait(); err == nil {
			t.Errorf("%v was not ended", commands[i])
		}
	}
	awaitNothingAdded(t, before)
}

func TestKilled(t *testing.T) {
	dir := hostDir(t)
	before := takeSnapshot(t)
	cmd, _ := startChild(t, "hold", dir)

	// Its sockets are reachable from outside its namespaces.
	nb := "--db=unix:" + filepath.Join(dir, "central/ovnnb_db.sock")
	if _, err := output(exec.Command("ovn-nbctl", nb, "--timeout=5", "show")); err != nil {
		t.Errorf("from outside: %v", err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("second lab in the same directory: got %v", err)
	}
	during := added(t, before)
	for _, daemon := range []string{"ovsdb-server", "ovn-northd", "ovn-controller", "ovs-vswitchd", "dnsmasq", "sleep"} {
		if !slices.ContainsFunc(during, func(p string) bool { return strings.HasSuffix(p, "("+daemon+")") }) {
			t.Errorf("no %s in %q", daemon, during)
		}
	}
	for _, d := range during {
		if strings.HasPrefix(d, "mount ") || strings.HasPrefix(d, "device ") {
			t.Errorf("seen outside: %s", d)
		}
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	awaitNothingAdded(t, before)

	// Only the directory it was told to use is there, for the next one.
	l := New(t, Options{Dir: dir})
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory after stop: %v", err)
	}
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		mode   string
		status int
		stderr string
	}{
		{"exit", 7, ""},
		{"panic", 2, "on purpose"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			dir := hostDir(t)
			before := takeSnapshot(t)
			cmd, stderr := startChild(t, tt.mode, dir)
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.status {
				t.Errorf("exit status %d, want %d", got, tt.status)
			}
			if !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("stderr is %q, want %q in it", stderr, tt.stderr)
			}
			awaitNothingAdded(t, before)
		})
	}
}

func TestSignalsArePassedOn(t *testing.T) {
	cmd, stderr := startChild(t, "hold", hostDir(t))
	// Go programs answer it with the stacks of all goroutines: as go test
	// asks for when a test hangs.
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 2 || !strings.Contains(stderr.String(), "lab.child") {
		t.Errorf("exit status %d, stderr:\n%s", got, stderr)
	}
}

func TestDaemonEndsByItself(t *testing.T) {
	l, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(filepath.Join(l.Nodes[0].Dir, "ovs-vswitchd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-l.alive.Done()
	if err := l.Stop(); err == nil || !strings.Contains(err.Error(), "node1/ovs-vswitchd ended by itself") {
		t.Errorf("stop: got %v", err)
	}
}

func TestStartFails(t *testing.T) {
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "something"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before := takeSnapshot(t)
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"nodes", Options{Nodes: 101}, "nodes: 101"},
		{"range outside", Options{RangeFirst: netip.MustParseAddr("192.0.2.1")}, "range: 192.0.2.1"},
		{"range backwards", Options{RangeLast: netip.MustParseAddr("10.1.192.2")}, "range: 10.1.192.100 to 10.1.192.2"},
		{"lease time", Options{LeaseTime: time.Minute}, "lease time: 1m0s"},
		{"long directory", Options{Dir: "/run/" + strings.Repeat("x", 80)}, "too long by 13 bytes"},
		{"occupied directory", Options{Dir: occupied}, "is not empty"},
		{"dnsmasq", Options{DNSMasqArgs: []string{"--nonsense"}}, "phys/dnsmasq ended by itself"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := Start(t.Context(), tt.o)
			if err == nil {
				l.Stop()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want %q in it", err, tt.want)
			}
		})
	}
	awaitNothingAdded(t, before)
}

// TestTraffic has two pods, one on each of two nodes, on a localnet switch:
// they get their addresses from the DHCP server and reach each other through
// OVN.
func TestTraffic(t *testing.T) {
	l := New(t, Options{
		Nodes:      2,
		RangeFirst: netip.MustParseAddr("10.1.192.50"),
		RangeLast:  netip.MustParseAddr("10.1.192.51"),
		LeaseTime:  time.Hour,
	})
	ctx := t.Context()
	nbctl(t, l, "ls-add", "net", "--", "lsp-add", "net", "phys", "--", "lsp-set-type", "phys", "localnet",
		"--", "lsp-set-addresses", "phys", "unknown", "--", "lsp-set-options", "phys", "network_name="+l.Phys.Network)
	macs := []string{"0a:58:0a:01:c0:01", "0a:58:0a:01:c0:02"}
	for i, n := range l.Nodes {
		pod := fmt.Sprint("pod", i+1)
		nbctl(t, l, "lsp-add", "net", pod, "--", "lsp-set-addresses", pod, macs[i], "--", "lsp-set-port-security", pod, macs[i])
		addPod(t, l, n, pod, macs[i])
	}
	nbctl(t, l, "--wait=hv", "sync")

	var addrs []netip.Addr
	for i := range l.Nodes {
		addrs = append(addrs, acquire(t, l, fmt.Sprint("pod", i+1)))
	}
	leases, err := l.DHCP.Leases()
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range addrs {
		j := slices.IndexFunc(leases, func(l DHCPLease) bool { return l.Addr == addr })
		if j < 0 || leases[j].MAC.String() != macs[i] {
			t.Errorf("no lease of %v for %s: %v", addr, macs[i], leases)
			continue
		}
		if left := time.Until(leases[j].Expiry); left < 59*time.Minute || left > time.Hour {
			t.Errorf("lease of %v expires in %v, not an hour", addr, left)
		}
	}
	ping(t, l.InNetns(ctx, "pod1", "ping", "-c1", "-W5", l.Phys.Gateway.String()))
	ping(t, l.InNetns(ctx, "pod1", "ping", "-c1", "-W5", addrs[1].String()))
	ping(t, l.InPhys(ctx, "ping", "-c1", "-W5", addrs[0].String()))

	if err := l.DHCP.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := udhcpc(l, "pod1").CombinedOutput(); err == nil {
		t.Errorf("a stopped server has answered: %s", out)
	}
	if err := l.DHCP.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if again := acquire(t, l, "pod1"); again != addrs[0] {
		t.Errorf("after a restart of the server: %v, was %v", again, addrs[0])
	}
	if !strings.Contains(l.DHCP.Log(), "DHCPACK") {
		t.Errorf("no DHCPACK in the server's log:\n%s", l.DHCP.Log())
	}
}

func nbctl(t *testing.T, l *Lab, args ...string) {
	t.Helper()
	if _, err := l.Nbctl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

func ping(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// addPod plugs a netns into a node's br-int.
func addPod(t *testing.T, l *Lab, n *Node, name, mac string) {
	t.Helper()
	if _, err := l.AddNetns(name); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{
		n.Command(t.Context(), "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", filepath.Base(l.NetnsPath(name))),
		n.Command(t.Context(), "ip", "link", "set", name, "up"),
		l.InNetns(t.Context(), name, "ethtool", "-K", "eth0", "tx", "off"),
		l.InNetns(t.Context(), name, "ip", "link", "set", "eth0", "up"),
		n.Command(t.Context(), "ovs-vsctl", "add-port", "br-int", name, "--", "set", "Interface", name, "external_ids:iface-id="+name),
	} {
		if _, err := output(cmd); err != nil {
			t.Fatal(err)
		}
	}
}

// udhcpc is a DHCP client that prints the address it has got.
func udhcpc(l *Lab, pod string) *exec.Cmd {
	script := filepath.Join(l.Dir, "udhcpc")
	os.WriteFile(script, []byte("#!/bin/sh\n[ $1 != bound ] || { ip address replace $ip/$mask dev $interface; echo $ip; }\n"), 0o755)
	return l.InNetns(context.Background(), pod, "busybox", "udhcpc", "-i", "eth0", "-fnq", "-t2", "-T1", "-A1", "-s", script)
}

func acquire(t *testing.T, l *Lab, pod string) netip.Addr {
	t.Helper()
	out, err := output(udhcpc(l, pod))
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netip.ParseAddr(out)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestNode(t *testing.T) {
	l := New(t, Options{Nodes: 2})
	// Each node has a CNI socket directory of its own, and sees every pod's
	// netns, also one that is newer than the node.
	pod, err := l.AddNetns("pod")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Nodes {
		script := `set -e; mkdir -m700 /var/run/ovn-kubernetes/cni; echo $0 > /var/run/ovn-kubernetes/cni/socket
			nsenter --net=` + pod + ` ls /proc/self/ns >&2; ovs-vsctl --db=unix:/var/run/openvswitch/db.sock get Open_vSwitch . external_ids:hostname; ls /sys/class/net`
		got, err := output(n.Command(t.Context(), "sh", "-c", script, n.Name))
		if err != nil {
			t.Error(err)
		}
		want := n.Name + "\nbr-ex\nbr-int\nlo\novs-netdev\nphys0"
		if got != want {
			t.Errorf("%s prints %q, want %q", n.Name, got, want)
		}
		links, err := n.Links()
		if diff := cmp.Diff([]string{"br-ex", "br-int", "lo", "ovs-netdev", "phys0"}, links); diff != "" || err != nil {
			t.Errorf("links of %s: %v\n%s", n.Name, err, diff)
		}
		data, err := os.ReadFile(filepath.Join(n.Dir, "ovn-kubernetes/cni/socket"))
		if string(data) != n.Name+"\n" {
			t.Errorf("in %s: %q, %v", n.Dir, data, err)
		}
	}
	if err := l.DelNetns("pod"); err != nil {
		t.Error(err)
	}
	for _, n := range l.Nodes {
		if _, err := output(n.Command(t.Context(), "test", "!", "-e", pod)); err != nil {
			t.Errorf("netns is still in %s: %v", n.Name, err)
		}
	}

	// A command is a child of ours, with its status and its files.
	cmd := l.Nodes[0].Command(t.Context(), "sh", "-c", "cat; exit 3")
	cmd.Stdin = strings.NewReader("input")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 || stdout.String() != "input" {
		t.Errorf("got %v, %q", err, &stdout)
	}
	// And it ends with its context.
	ctx, cancel := context.WithCancel(t.Context())
	cmd = l.Nodes[0].Command(ctx, "sh", "-c", "echo; exec sleep infinity")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := cmd.Wait(); !errors.Is(err, context.Canceled) && cmd.ProcessState.Success() {
		t.Errorf("cancelled command: %v", err)
	}
}

func TestParseLeases(t *testing.T) {
	mac := net.HardwareAddr{0x0a, 0x58, 0x0a, 1, 0xc0, 1}
	for _, tt := range []struct {
		name, file string
		want       []DHCPLease
		wantErr    string
	}{
		{name: "none"},
		{
			name: "two",
			file: "1796000000 0a:58:0a:01:c0:01 10.1.192.108 web-0 01:0a:58:0a:01:c0:01\n0 0a:58:0a:01:c0:01 10.1.192.109 * *\n",
			want: []DHCPLease{
				{Expiry: time.Unix(1796000000, 0), MAC: mac, Addr: netip.MustParseAddr("10.1.192.108"), Hostname: "web-0", ClientID: append([]byte{1}, mac...)},
				{MAC: mac, Addr: netip.MustParseAddr("10.1.192.109")},
			},
		},
		{name: "fields", file: "0 0a:58:0a:01:c0:01 10.1.192.109 *\n", wantErr: "4 fields"},
		{name: "expiry", file: "soon 0a:58:0a:01:c0:01 10.1.192.109 * *\n", wantErr: `"soon"`},
		{name: "mac", file: "0 0a:58 10.1.192.109 * *\n", wantErr: "0a:58"},
		{name: "address", file: "0 0a:58:0a:01:c0:01 10.1.192 * *\n", wantErr: "10.1.192"},
		{name: "client identifier", file: "0 0a:58:0a:01:c0:01 10.1.192.109 * x\n", wantErr: "client identifier"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseLeases(tt.file)
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}
