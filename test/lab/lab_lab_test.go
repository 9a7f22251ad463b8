// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

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
	ovn25, err := OVN25()
	if err != nil {
		t.Fatal(err)
	}
	before := takeSnapshot(t)
	options := []Options{{Nodes: 2}, {Nodes: 2, OVN: ovn25, VLAN: 100, NBServers: 3}}
	labs := make([]*Lab, len(options))
	var g errgroup.Group
	for i, o := range options {
		g.Go(func() (err error) {
			began := time.Now()
			labs[i], err = Start(t.Context(), o)
			t.Logf("lab %d with 2 nodes started in %v", i+1, time.Since(began).Round(time.Millisecond))
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
		{"ovn", Options{OVN: "/nonexistent"}, "/nonexistent/root/usr/share/openvswitch/vswitch.ovsschema (test/ovn25.sh"},
		{"nodes", Options{Nodes: 101}, "nodes: 101"},
		{"servers", Options{NBServers: 10}, "northbound servers: 10"},
		{"nodes of a database", Options{NBOnly: true, Nodes: 1}, "neither nodes"},
		{"vlan", Options{VLAN: 4095}, "vlan: 4095"},
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
