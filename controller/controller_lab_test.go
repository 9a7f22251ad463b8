// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// lab is a northbound database of the test's own, an observer of it, and the
// objects of the controllers that run on it.
type lab struct {
	*memory
	t    testing.TB
	dir  string
	kill func() // ends the database server
	poke chan struct{}
}

func newLab(t testing.TB) *lab {
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

// log is what each transaction of the database has written, as the server has
// it on disk: rows by table and UUID.
func (l *lab) log() []map[string]map[string]json.RawMessage {
	l.t.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "nb.db"))
	if err != nil {
		l.t.Fatal(err)
	}
	var out []map[string]map[string]json.RawMessage
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for i := 3; i < len(lines); i += 2 { // each after a header, and the first is the schema
		line := lines[i]
		record := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			l.t.Fatal(err)
		}
		tables := map[string]map[string]json.RawMessage{}
		for table, rows := range record {
			if table[0] == '_' {
				continue // when and why
			}
			byUUID := map[string]json.RawMessage{}
			if err := json.Unmarshal(rows, &byUUID); err != nil {
				l.t.Fatal(err)
			}
			tables[table] = byUUID
		}
		out = append(out, tables)
	}
	return out
}

// transactions is how many the database has made.
func (l *lab) transactions() int { return len(l.log()) }

// background runs f until the end of the test, or until stop is called.
func (l *lab) background(f func(ctx context.Context) error) (stop func()) {
	var done <-chan error
	l.t.Cleanup(func() {
		if err := <-done; !errors.Is(err, context.Canceled) {
			l.t.Errorf("ended: %v", err)
		}
	})
	stop, done = l.start(f) // whose cleanup comes before
	return stop
}

// start runs f until the end of the test, or until stop is called; done has its
// error in the end.
func (l *lab) start(f func(ctx context.Context) error) (stop func(), done <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended, err := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		err <- f(ctx)
	}()
	stop = func() { cancel(); <-ended }
	l.t.Cleanup(stop)
	return stop, err
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
	return l.background(l.controller(l, "").Run)
}

// controller is one of several where leader is not empty, which says that it
// has been elected.
func (l *lab) controller(source Source, leader string) *Controller {
	l.t.Helper()
	cfg := Config{Source: source, NB: l.endpoint(), Leader: leader, Log: slog.New(slog.DiscardHandler)}
	if leader != "" {
		cfg.Elected = func(context.Context) (bool, error) { return true, nil }
	}
	c, err := New(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
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

// dump is the whole content, but for what OVN itself writes, and the marks.
func (l *lab) dump() string {
	return mark.ReplaceAllString(l.columns("Logical_Switch", "_uuid,name,external_ids,ports"), "") + "\n" +
		l.columns("Logical_Switch_Port", "_uuid,name,type,addresses,port_security,options,external_ids,tag_request,dhcpv4_options")
}

// mark is what a switch has after a change of ACLs.
var mark = regexp.MustCompile(` ovn-dhcp-ipam/recompute=[0-9a-f-]+`)

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
		{"Logical_Switch", "net_ovn_localnet_switch", "external_ids", `{"k8s.ovn.org/network"=net, "k8s.ovn.org/role"=secondary, "k8s.ovn.org/topology"=localnet, "ovn-dhcp-ipam/nad"="ns/net", "ovn-dhcp-ipam/owner"="network/net"}`},
		{"Logical_Switch_Port", "net_ovn_localnet_port", "options", `{network_name=physnet}`},
		{"Logical_Switch_Port", "net_ovn_localnet_port", "tag_request", "100"},
		{"Logical_Switch_Port", "net_ovn_localnet_port", "type", "localnet"},
		{"Logical_Switch_Port", port1, "options", `{iface-id-ver=uid-p1, requested-chassis=n1}`},
		{"Logical_Switch_Port", port1, "dhcpv4_options", "[]"},
		{"Logical_Switch_Port", port1, "external_ids", `{"k8s.ovn.org/nad"="ns/net", "k8s.ovn.org/network"=net, "k8s.ovn.org/topology"=localnet, namespace=ns, "ovn-dhcp-ipam/owner"="port/ns/net/ns/p1", "ovn-dhcp-ipam/plugin"=ovn-k8s-cni-overlay, pod="true"}`},
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

// namedNAD is NAD ns/n of network name.
func namedNAD(n, name string) string {
	return strings.NewReplacer("name: net", "name: "+n, "ns/net", "ns/"+n, `"net"`, `"`+name+`"`).Replace(netNAD)
}

func TestRestartRepairsExactly(t *testing.T) {
	const pods = 1000
	l := newLab(t)
	l.nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "theirs-port", "--", "set", "Logical_Switch", "theirs",
		"external_ids:k8s.ovn.org/network=net", "external_ids:k8s.ovn.org/role=secondary")
	l.set(t, netNAD)
	l.set(t, namedNAD("n1", "a-b")+"\n---\n"+namedNAD("n2", "a.b"))
	want := []string{localnetPort, "a.b_ovn_localnet_port,unknown,", "theirs-port,,"}
	for i := range pods {
		name, mac := fmt.Sprintf("p%03d", i), fmt.Sprintf("0a:00:00:00:%02x:%02x", i>>8, i&0xff)
		address := fmt.Sprintf("198.18.%d.%d", i>>8, i&0xff)
		l.set(t, podYAML(name, mac, address+"/15"))
		want = append(want, portLine(name, mac+" "+address))
	}
	stop := l.control()
	l.awaitPorts(want...)
	collision := "NetworkAttachmentDefinition ns/n2: NameCollision: " +
		`network "a.b" would have the same switch as network "a-b" of NetworkAttachmentDefinition ns/n1` + "\n"
	l.await("problems", collision, l.reported)
	ours := l.dump()
	l.nbctl("lsp-add", "net_ovn_localnet_switch", "theirs-on-ours")
	want = append(want, "theirs-on-ours,,")
	before, transactions := l.dump(), l.transactions()
	stop()

	// A pod that comes after the restart shows that the first pass is over.
	stop = l.control()
	l.set(t, podYAML("after", "0a:00:00:00:ff:ff", ""))
	l.awaitPorts(append(want, portLine("after", "0a:00:00:00:ff:ff"))...)
	l.remove(kindPod, "ns/after")
	l.awaitPorts(want...)
	if got := l.transactions() - transactions; got != 2 {
		t.Errorf("a restart, a pod and its removal took %d transactions, want 2", got)
	}
	stop()

	tampered := []string{"net_ovn_localnet_switch", "net_ovn_localnet_port"} // the switch loses a port
	for i := range 9 {
		tampered = append(tampered, fmt.Sprintf("ns.net_ns_p%03d", 100*i))
	}
	var uuids []string
	for _, line := range strings.Split(l.columns("Logical_Switch", "name,_uuid")+"\n"+l.columns("Logical_Switch_Port", "name,_uuid"), "\n") {
		if name, uuid, _ := strings.Cut(line, ","); slices.Contains(tampered, name) {
			uuids = append(uuids, uuid)
		}
	}
	slices.Sort(uuids)
	tamper := func() {
		l.nbctl("--id=@dhcp", "create", "DHCP_Options", "cidr=192.0.2.0/24", "--",
			"set", "Logical_Switch_Port", "net_ovn_localnet_port", "tag_request=5", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p000", "addresses=unknown", "--",
			"clear", "Logical_Switch_Port", "ns.net_ns_p100", "port_security", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p200", "options:requested-chassis=x", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p300", "external_ids:k8s.ovn.org/nad=x", "--",
			"remove", "Logical_Switch_Port", "ns.net_ns_p400", "external_ids", "ovn-dhcp-ipam/owner", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p500", "type=router", "--",
			"lsp-del", "ns.net_ns_p600", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p700", "name=x", "--",
			"set", "Logical_Switch_Port", "ns.net_ns_p800", "dhcpv4_options=@dhcp")
	}
	tamper()
	transactions = l.transactions()
	stop = l.control()
	l.await("content after a restart", before, l.dump)
	repair := l.log()[transactions:]
	if len(repair) != 1 {
		t.Errorf("repair took %d transactions, want 1", len(repair))
	}
	written := map[string]bool{}
	for _, tables := range repair {
		for _, rows := range tables {
			for uuid := range rows {
				written[uuid] = true
			}
		}
	}
	if d := cmp.Diff(uuids, slices.Sorted(maps.Keys(written))); d != "" {
		t.Errorf("rows written by the repair (-want +got):\n%s", d)
	}
	tamper()
	l.await("content after repair at work", before, l.dump)
	l.nbctl("lsp-del", "theirs-on-ours", "--", "ls-del", "net_ovn_localnet_switch")
	l.await("content after the switch was deleted", ours, l.dump)
	l.await("problems", collision, l.reported)
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

// sleeper is a source that holds up its controller while it is asleep.
type sleeper struct {
	*memory
	asleep chan struct{} // tells that the controller is held up
	awake  chan struct{} // closed to let it go on
}

func (s *sleeper) Pod(namespace, name string) *corev1.Pod {
	if name == "late" {
		close(s.asleep)
		<-s.awake
	}
	return s.memory.Pod(namespace, name)
}

func TestSupersededControllerWritesNothing(t *testing.T) {
	l := newLab(t)
	former := &sleeper{newMemory(), make(chan struct{}), make(chan struct{})}
	for _, m := range []*memory{former.memory, l.memory} {
		m.set(t, netNAD)
		m.set(t, podYAML("p1", mac1, ""))
	}
	_, ended := l.start(l.controller(former, "former").Run)
	l.awaitPorts(localnetPort, portLine("p1", mac1))

	// It falls asleep with changes in hand, and wakes when another leads.
	former.set(t, podYAML("p1", mac1, "192.0.2.66/24"))
	l.awaitPorts(localnetPort, portLine("p1", mac1+" 192.0.2.66"))
	former.set(t, podYAML("late", "0a:00:00:00:00:02", ""))
	<-former.asleep
	wake := sync.OnceFunc(func() { close(former.awake) })
	t.Cleanup(wake)
	l.set(t, podYAML("p1", mac1, "192.0.2.1/24"))
	stop, done := l.start(l.controller(l, "next").Run)
	l.awaitPorts(localnetPort, portLine("p1", mac1+" 192.0.2.1"))
	before, transactions := l.dump(), l.transactions()
	wake()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrSuperseded) {
			t.Errorf("the former leader has ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the former leader goes on")
	}
	if d := cmp.Diff(before, l.dump()); d != "" {
		t.Errorf("content (-before +after the former leader has woken):\n%s", d)
	}
	if got := l.transactions() - transactions; got != 0 {
		t.Errorf("the former leader has made %d transactions", got)
	}

	// The next one goes on, and who comes after it writes nothing but the fence.
	l.set(t, podYAML("p2", "0a:00:00:00:00:02", ""))
	l.awaitPorts(localnetPort, portLine("p1", mac1+" 192.0.2.1"), portLine("p2", "0a:00:00:00:00:02"))
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the next leader has ended with %v", err)
	}
	transactions = l.transactions()
	l.background(l.controller(l, "last").Run)
	l.set(t, podYAML("p3", "0a:00:00:00:00:03", "")) // shows that the first pass is over
	l.await("port", "0a:00:00:00:00:03", func() string {
		return l.nbctl("--bare", "--columns=addresses", "find", "Logical_Switch_Port", "name=ns.net_ns_p3")
	})
	log := l.log()[transactions:]
	if len(log) != 2 || len(log[0]) != 1 || len(log[0]["Address_Set"]) != 1 {
		t.Errorf("transactions of a new leader, and for a pod:\n%s", log)
	}
}

// One pod's address changes; the time is until the row's change is seen.
func BenchmarkChange(b *testing.B) {
	for _, pods := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("%d ports", pods), func(b *testing.B) {
			l := newLab(b)
			l.set(b, netNAD)
			for i := range pods {
				l.set(b, podYAML(fmt.Sprintf("p%d", i), fmt.Sprintf("0a:00:00:00:%02x:%02x", i>>8, i&0xff), ""))
			}
			l.control()
			l.await("ports", fmt.Sprint(pods+1), func() string { return fmt.Sprint(strings.Count(l.ports(), "\n") + 1) })
			for len(l.poke) > 0 {
				<-l.poke
			}
			for i := 0; b.Loop(); i++ {
				l.set(b, podYAML("p7", "0a:00:00:00:00:07", fmt.Sprintf("192.0.%d.%d/16", i/250%250, i%250+1)))
				<-l.poke
			}
		})
	}
}

// A NAD that names another network takes its pods' ports there; the rows stay
// the same ones.
func TestPortFollowsItsNetwork(t *testing.T) {
	l := newLab(t)
	l.control()
	l.set(t, netNAD)
	l.set(t, podYAML("p1", mac1, "192.0.2.1/24"))
	l.awaitPorts(localnetPort, portLine("p1", mac1+" 192.0.2.1"))
	before := l.nbctl("--bare", "--columns=_uuid", "list", "Logical_Switch_Port", port1)
	l.set(t, strings.Replace(netNAD, `"name":"net"`, `"name":"other"`, 1))
	l.await("the port's switch", port1, func() string {
		ports := l.nbctl("--bare", "--columns=name", "find", "Logical_Switch_Port", "external_ids:k8s.ovn.org/network=other")
		if list := l.nbctl("lsp-list", "other_ovn_localnet_switch"); !strings.Contains(list, "("+port1+")") {
			return list
		}
		return strings.TrimSpace(ports)
	})
	if after := l.nbctl("--bare", "--columns=_uuid", "list", "Logical_Switch_Port", port1); after != before {
		t.Errorf("the port is another row: %s, before %s", after, before)
	}
	l.await("the former network", "", func() string {
		return l.nbctl("--bare", "--columns=name", "find", "Logical_Switch", "name=net_ovn_localnet_switch")
	})
}
