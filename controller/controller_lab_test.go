// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package controller

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// lab is a northbound database of the test's own, an observer of it, and the
// objects of the controllers that run on it.
type lab struct {
	*memory
	t    *testing.T
	dir  string
	kill func() // ends the database server
	poke chan struct{}
}

func newLab(t *testing.T) *lab {
	dir, err := os.MkdirTemp("", "nb") // a short path: sockets have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{memory: newMemory(), t: t, dir: dir, poke: make(chan struct{}, 1)}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l.command("ovsdb-tool", "create", filepath.Join(dir, "nb.db"), "../models/nb/ovn-nb.ovsschema")
	l.serve()
	t.Cleanup(func() { l.kill() })
	l.observe()
	return l
}

func (l *lab) endpoint() string { return "unix:" + filepath.Join(l.dir, "nb.sock") }

// serve starts the database server.
func (l *lab) serve() {
	l.t.Helper()
	// The command of --run starts when the server listens.
	cmd := exec.Command("ovsdb-server", "--remote=p"+l.endpoint(), "--unixctl="+filepath.Join(l.dir, "ctl"),
		"--log-file="+filepath.Join(l.dir, "log"), "--run=echo ready; cat", filepath.Join(l.dir, "nb.db"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.kill = func() {
		cmd.Process.Kill()
		stdin.Close() // ends the command of --run
		cmd.Wait()
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		l.t.Fatalf("ovsdb-server does not start: %q, %v", line, err)
	}
}

func (l *lab) command(name string, args ...string) string {
	l.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (l *lab) nbctl(args ...string) string {
	l.t.Helper()
	return l.command("ovn-nbctl", append([]string{"--db=" + l.endpoint(), "--timeout=10"}, args...)...)
}

// transactions is how many the database has made.
func (l *lab) transactions() int {
	l.t.Helper()
	return strings.Count(l.command("ovsdb-tool", "show-log", filepath.Join(l.dir, "nb.db")), "record ")
}

// background runs f until the end of the test, or until stop is called.
func (l *lab) background(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := f(ctx); !errors.Is(err, context.Canceled) {
			l.t.Errorf("ended: %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	l.t.Cleanup(stop)
	return stop
}

// observe pokes at every change of our rows.
func (l *lab) observe() {
	c, err := nbdb.New(nbdb.Config{Endpoint: l.endpoint(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.t.Fatal(err)
	}
	l.background(func(ctx context.Context) error {
		return c.Run(ctx, func(ctx context.Context, s *nbdb.Session) error {
			s.Watch(func(string) { l.poked() })
			l.poked()
			<-ctx.Done()
			return ctx.Err()
		})
	})
}

func (l *lab) poked() {
	select {
	case l.poke <- struct{}{}:
	default:
	}
}

// Report is memory's, and a poke.
func (l *lab) Report(ctx context.Context, kind, namespace, name string, problems map[string]string) error {
	defer l.poked()
	return l.memory.Report(ctx, kind, namespace, name, problems)
}

// control runs a controller.
func (l *lab) control() (stop func()) {
	l.t.Helper()
	c, err := New(Config{Source: l, NB: l.endpoint(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.t.Fatal(err)
	}
	return l.background(c.Run)
}

// await waits until got returns want.
func (l *lab) await(what, want string, got func() string) {
	l.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		now := got()
		if now == want {
			return
		}
		select {
		case <-l.poke:
		case <-deadline:
			l.t.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, now))
		}
	}
}

// columns are some columns of rows, one row a line, sorted.
func (l *lab) columns(table, columns string) string {
	l.t.Helper()
	lines := strings.Split(l.nbctl("--no-headings", "--format=csv", "--data=bare", "--columns="+columns, "list", table), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (l *lab) ports() string { return l.columns("Logical_Switch_Port", "name,addresses,port_security") }

func (l *lab) awaitPorts(want ...string) {
	l.t.Helper()
	want = slices.Sorted(slices.Values(want))
	l.await("ports", strings.Join(want, "\n"), l.ports)
}

// dump is the whole content, but for what OVN itself writes.
func (l *lab) dump() string {
	return l.columns("Logical_Switch", "_uuid,name,external_ids,ports") + "\n" +
		l.columns("Logical_Switch_Port", "_uuid,name,type,addresses,port_security,options,external_ids,tag_request,dhcpv4_options")
}

const localnetPort = "net_ovn_localnet_port,unknown,"

func portLine(pod, address string) string {
	return fmt.Sprintf("ns.net_ns_%s,%s,%s", pod, address, address)
}

func TestPodsToRows(t *testing.T) {
	l := newLab(t)
	l.control()
	l.set(t, strings.Replace(netNAD, `"ipam"`, `"vlanID":100,"physicalNetworkName":"physnet","ipam"`, 1))
	l.awaitPorts(localnetPort)
	l.set(t, podYAML("p1", mac1, ""))
	l.awaitPorts(localnetPort, portLine("p1", mac1))
	l.set(t, podYAML("p1", mac1, "192.0.2.7/24"))
	l.awaitPorts(localnetPort, portLine("p1", mac1+" 192.0.2.7"))
	for _, tt := range []struct{ table, row, column, want string }{
		{"Logical_Switch", "net_ovn_localnet_switch", "external_ids", `{"k8s.ovn.org/network"=net, "k8s.ovn.org/role"=secondary, "k8s.ovn.org/topology"=localnet, "ovn-dhcp-ipam/owner"="network/net"}`},
		{"Logical_Switch_Port", "net_ovn_localnet_port", "options", `{network_name=physnet}`},
		{"Logical_Switch_Port", "net_ovn_localnet_port", "tag_request", "100"},
		{"Logical_Switch_Port", "net_ovn_localnet_port", "type", "localnet"},
		{"Logical_Switch_Port", port1, "options", `{iface-id-ver=uid-p1, requested-chassis=n1}`},
		{"Logical_Switch_Port", port1, "dhcpv4_options", "[]"},
		{"Logical_Switch_Port", port1, "external_ids", `{"k8s.ovn.org/nad"="ns/net", "k8s.ovn.org/network"=net, "k8s.ovn.org/topology"=localnet, namespace=ns, "ovn-dhcp-ipam/owner"="port/ns/net/ns/p1", pod="true"}`},
	} {
		if got := l.nbctl("get", tt.table, tt.row, tt.column); got != tt.want {
			t.Errorf("%s of %s is\n%s, want\n%s", tt.column, tt.row, got, tt.want)
		}
	}

	// The repair shows that the controller has seen the port bound.
	l.nbctl("set", "Logical_Switch_Port", port1, "up=true", "addresses=unknown")
	l.awaitPorts(localnetPort, portLine("p1", mac1+" 192.0.2.7"))
	l.remove(kindPod, "ns/p1")
	l.set(t, podYAML("p2", "0a:00:00:00:00:02", ""))
	l.awaitPorts(localnetPort, portLine("p1", mac1+" 192.0.2.7"), portLine("p2", "0a:00:00:00:00:02"))
	l.nbctl("set", "Logical_Switch_Port", port1, "up=false")
	l.awaitPorts(localnetPort, portLine("p2", "0a:00:00:00:00:02"))
	l.remove(kindPod, "ns/p2")
	l.remove(kindNAD, "ns/net")
	l.await("everything", "", func() string { return l.nbctl("show") })
}

func TestRestartRepairsExactly(t *testing.T) {
	l := newLab(t)
	l.nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "theirs-port", "--", "set", "Logical_Switch", "theirs",
		"external_ids:k8s.ovn.org/network=net", "external_ids:k8s.ovn.org/role=secondary")
	l.set(t, netNAD)
	want := []string{localnetPort, "theirs-port,,"}
	for i := range 20 {
		mac := fmt.Sprintf("0a:00:00:00:00:%02d", i)
		l.set(t, podYAML(fmt.Sprintf("p%02d", i), mac, "192.0.2.1/24"))
		want = append(want, portLine(fmt.Sprintf("p%02d", i), mac+" 192.0.2.1"))
	}
	stop := l.control()
	l.awaitPorts(want...)
	before, transactions := l.dump(), l.transactions()
	stop()

	// A pod that comes after the restart shows that the first pass is over.
	stop = l.control()
	l.set(t, podYAML("after", mac1[:15]+"ff", ""))
	l.awaitPorts(append(want, portLine("after", mac1[:15]+"ff"))...)
	l.remove(kindPod, "ns/after")
	l.awaitPorts(want...)
	if got := l.transactions() - transactions; got != 2 {
		t.Errorf("a restart, a pod and its removal took %d transactions, want 2", got)
	}
	tamper := func() {
		l.nbctl("set", "Logical_Switch_Port", "ns.net_ns_p00", "addresses=unknown", "--",
			"clear", "Logical_Switch_Port", "ns.net_ns_p01", "port_security", "--",
			"lsp-del", "ns.net_ns_p02", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p03", "options:requested-chassis=x", "--",
			"remove", "Logical_Switch_Port", "ns.net_ns_p04", "external_ids", "ovn-dhcp-ipam/owner", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p05", "name=x", "--",
			"set", "Logical_Switch_Port", "net_ovn_localnet_port", "tag_request=5")
	}
	stop()
	tamper()
	transactions = l.transactions()
	stop = l.control()
	l.await("content after a restart", before, l.dump)
	if got := l.transactions() - transactions; got != 2 {
		t.Errorf("repair took %d transactions, want 2: network and ports", got)
	}
	tamper()
	l.await("content after repair at work", before, l.dump)
	l.nbctl("ls-del", "net_ovn_localnet_switch")
	l.await("content after the switch was deleted", before, l.dump)
	stop()
}

func TestAdoptsRowsOfItsNames(t *testing.T) {
	l := newLab(t)
	l.nbctl("ls-add", "net_ovn_localnet_switch", "--",
		"lsp-add", "net_ovn_localnet_switch", "net_ovn_localnet_port", "--",
		"lsp-add", "net_ovn_localnet_switch", port1, "--", "set", "Logical_Switch_Port", port1, "external_ids:x=y")
	ids := l.columns("Logical_Switch_Port", "_uuid,name")
	l.set(t, netNAD)
	l.set(t, podYAML("p1", mac1, ""))
	l.control()
	l.awaitPorts(localnetPort, portLine("p1", mac1))
	if d := cmp.Diff(ids, l.columns("Logical_Switch_Port", "_uuid,name")); d != "" {
		t.Errorf("rows (-before +now):\n%s", d)
	}
	if got := l.nbctl("get", "Logical_Switch_Port", port1, "external_ids:x"); got != "y" {
		t.Errorf("external_ids:x is %s", got)
	}
}

func TestRefusesRowsOfAnotherNetwork(t *testing.T) {
	l := newLab(t)
	l.nbctl("ls-add", "net_ovn_localnet_switch", "--", "set", "Logical_Switch", "net_ovn_localnet_switch", "external_ids:k8s.ovn.org/network=n-e-t")
	before := l.dump()
	l.set(t, netNAD)
	l.set(t, strings.NewReplacer("name: net", "name: blue", "ns/net", "ns/blue", `"net"`, `"blue"`).Replace(netNAD))
	l.set(t, podYAML("p1", mac1, ""))
	l.control()
	l.awaitPorts("blue_ovn_localnet_port,unknown,")
	l.await("problems", strings.Join([]string{
		`NetworkAttachmentDefinition ns/net: NorthboundRefused: Logical_Switch net_ovn_localnet_switch exists in OVN's northbound database and belongs to network "n-e-t"`,
		`Pod ns/p1: NorthboundRefused: OVN's northbound database has no switch net_ovn_localnet_switch of ours for port ns.net_ns_p1`, "",
	}, "\n"), l.reported)
	if now := l.dump(); !strings.Contains(now, before[:strings.IndexByte(before, '\n')]) {
		t.Errorf("the foreign switch is no longer\n%s in\n%s", before, now)
	}
	l.nbctl("ls-del", "net_ovn_localnet_switch")
	l.awaitPorts("blue_ovn_localnet_port,unknown,", localnetPort, portLine("p1", mac1))
	l.await("problems", "", l.reported)
}

func TestDatabaseRestart(t *testing.T) {
	l := newLab(t)
	l.control()
	l.set(t, netNAD)
	l.awaitPorts(localnetPort)
	l.kill()
	l.set(t, podYAML("p1", mac1, ""))
	l.serve()
	l.awaitPorts(localnetPort, portLine("p1", mac1))

	// One that has lost everything is filled again.
	before := l.dump()
	l.kill()
	db := filepath.Join(l.dir, "nb.db")
	if err := os.Remove(db); err != nil {
		t.Fatal(err)
	}
	l.command("ovsdb-tool", "create", db, "../models/nb/ovn-nb.ovsschema")
	l.serve()
	l.await("content", before, l.dump)
}
