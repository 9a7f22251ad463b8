// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nbdb

import (
	"bufio"
	"context"
	"errors"
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

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// server is a northbound database of the test's own.
type server struct{ dir string }

func (s server) endpoint() string { return "unix:" + filepath.Join(s.dir, "nb.sock") }

func startServer(t testing.TB) server {
	t.Helper()
	dir, err := os.MkdirTemp("", "nb") // a short path: sockets have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := server{dir}
	db := filepath.Join(dir, "nb.db")
	command(t, "ovsdb-tool", "create", db, "../models/nb/ovn-nb.ovsschema")
	// The command of --run starts when the server listens, and the server ends
	// with it, that is when its standard input is closed.
	cmd := exec.Command("ovsdb-server", "--remote=p"+s.endpoint(), "--unixctl="+filepath.Join(dir, "ctl"),
		"--log-file="+filepath.Join(dir, "log"), "--run=echo ready; cat", db)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("ovsdb-server: %v", err)
		}
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("ovsdb-server does not start: %q, %v", line, err)
	}
	return s
}

func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s server) nbctl(t testing.TB, args ...string) string {
	t.Helper()
	return command(t, "ovn-nbctl", append([]string{"--db=" + s.endpoint(), "--timeout=10"}, args...)...)
}

// session is a session that lasts as long as the test.
func session(t testing.TB, srv server) *Session {
	t.Helper()
	return start(t, srv, nil).next(t)
}

// running is a client at work.
type running struct {
	sessions chan *Session
	fail     chan error // what serve is to return
	done     chan struct{}
	err      error // why it has ended, once done is closed
}

// start runs a client until the end of the test.
func start(t testing.TB, srv server, fence *Fence) *running {
	t.Helper()
	c, err := New(Config{Endpoint: srv.endpoint(), Fence: fence, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{sessions: make(chan *Session), fail: make(chan error), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = c.Run(ctx, func(ctx context.Context, s *Session) error {
			for {
				select {
				case r.sessions <- s:
				case err := <-r.fail:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

func (r *running) next(t testing.TB) *Session {
	t.Helper()
	select {
	case s := <-r.sessions:
		return s
	case <-r.done:
		t.Fatalf("the client has ended: %v", r.err)
	case <-time.After(20 * time.Second):
		t.Fatal("no session with the database")
	}
	return nil
}

func apply(t testing.TB, s *Session, key string, want Rows) (Change, error) {
	t.Helper()
	c, err := Diff(key, s.Rows(key, want), want)
	if err != nil {
		return c, err
	}
	return c, s.Apply(t.Context(), c)
}

func mustApply(t testing.TB, s *Session, key string, want Rows) Change {
	t.Helper()
	c, err := apply(t, s, key, want)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Diff(key, s.Rows(key, want), want); err != nil || !again.Empty() {
		t.Fatalf("after %s is applied there is still (error %v)\n%s", key, err, again)
	}
	return c
}

func networkRows() Rows {
	return Rows{
		Switches: []Switch{{Name: testSwitch, ExternalIDs: map[string]string{NetworkKey: "net"}}},
		Ports: []Port{{
			Name: "net_ovn_localnet_port", Switch: testSwitch, Type: "localnet", Addresses: []string{"unknown"},
			Options: map[string]string{"network_name": "physnet"}, TagRequest: 100,
		}},
	}
}

func TestApply(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	changed := make(chan string, 1000)
	s.Watch(func(key string) { changed <- key })

	if _, err := apply(t, s, testKey, Rows{Ports: []Port{wantPort()}}); err == nil {
		t.Error("port without switch: no error")
	}
	mustApply(t, s, "network/net", networkRows())
	mustApply(t, s, testKey, Rows{Ports: []Port{wantPort()}})
	if got, want := <-changed, "network/net"; got != want {
		t.Errorf("watch told %q, want %q", got, want)
	}
	if got := srv.nbctl(t, "--bare", "--columns=ports", "list", "Logical_Switch"); len(strings.Fields(got)) != 2 {
		t.Errorf("ports of the switch: %s", got)
	}
	keys := s.Keys()
	slices.Sort(keys)
	if d := cmp.Diff([]string{"network/net", testKey}, keys); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}

	// Every column in use changes, and other programs' keys stay.
	srv.nbctl(t, "set", "Logical_Switch_Port", testPort, "external_ids:theirs=1", "options:theirs=2", "up=true")
	want := wantPort()
	want.Addresses = []string{"0a:00:00:00:00:01"}
	want.PortSecurity = []string{"0a:00:00:00:00:01"}
	want.Options["requested-chassis"] = "n2"
	mustApply(t, s, testKey, Rows{Ports: []Port{want}})
	network := networkRows()
	network.Ports[0].TagRequest = 0
	mustApply(t, s, "network/net", network)
	for column, value := range map[string]string{
		"external_ids:theirs": `"1"`, "options:theirs": `"2"`, "options:requested-chassis": "n2", "addresses": `["0a:00:00:00:00:01"]`,
	} {
		if got := srv.nbctl(t, "get", "Logical_Switch_Port", testPort, column); got != value {
			t.Errorf("%s is %s, want %s", column, got, value)
		}
	}
	if have := s.Rows(testKey, Rows{}); len(have.Ports) != 1 || !have.Ports[0].Up {
		t.Errorf("port is not up:\n%s", have)
	}

	// A switch is removed only with the ports of its own group.
	if _, err := apply(t, s, "network/net", Rows{}); !errors.Is(err, ErrRefused) {
		t.Errorf("removal of a switch that has a pod's port: error %v, want a refusal", err)
	}
	mustApply(t, s, testKey, Rows{})
	mustApply(t, s, "network/net", Rows{})
	if got := srv.nbctl(t, "show"); got != "" {
		t.Errorf("left over: %s", got)
	}
}

func TestAdopt(t *testing.T) {
	srv := startServer(t)
	srv.nbctl(t, "ls-add", testSwitch, "--", "lsp-add", testSwitch, testPort, "--",
		"lsp-set-addresses", testPort, "unknown", "--", "set", "Logical_Switch_Port", testPort, "external_ids:theirs=1")
	srv.nbctl(t, "ls-add", "theirs", "--", "lsp-add", "theirs", "ns.n_ns_q")
	id := srv.nbctl(t, "get", "Logical_Switch_Port", testPort, "_uuid")
	before := srv.nbctl(t, "list", "Logical_Switch", "theirs")
	s := session(t, srv)

	mustApply(t, s, "network/net", networkRows())
	mustApply(t, s, testKey, Rows{Ports: []Port{wantPort()}})
	if got := srv.nbctl(t, "get", "Logical_Switch_Port", testPort, "_uuid"); got != id {
		t.Errorf("adopted port is row %s, was %s", got, id)
	}
	if got := srv.nbctl(t, "--bare", "--columns=_uuid", "find", "Logical_Switch", "name="+testSwitch); len(strings.Fields(got)) != 1 {
		t.Errorf("switches of the name: %s", got)
	}

	other := wantPort()
	other.Name = "ns.n_ns_q"
	if _, err := apply(t, s, "port/ns/n/ns/q", Rows{Ports: []Port{other}}); !errors.Is(err, ErrRefused) {
		t.Errorf("port on another switch: error %v, want a refusal", err)
	} else if !strings.Contains(err.Error(), testSwitch) {
		t.Errorf("error does not name the switch: %v", err)
	}
	if after := srv.nbctl(t, "list", "Logical_Switch", "theirs"); after != before {
		t.Errorf("foreign switch is now\n%s", after)
	}
}

// A name that was taken since the rows were read fails at the end of the
// transaction and not in one operation.
func TestRefusedAtCommit(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	mustApply(t, s, "network/net", networkRows())
	want := Rows{Ports: []Port{wantPort()}}
	c, err := Diff(testKey, s.Rows(testKey, want), want)
	if err != nil {
		t.Fatal(err)
	}
	srv.nbctl(t, "lsp-add", testSwitch, testPort)
	if err := s.Apply(t.Context(), c); !errors.Is(err, ErrRefused) {
		t.Errorf("error %v, want a refusal", err)
	}
}

// What Apply has written, Rows gives when Apply has returned, however late libovsdb tells
// of it and of what was there before.
func TestRowsAfterApply(t *testing.T) {
	s := session(t, startServer(t))
	mustApply(t, s, "network/net", networkRows())
	want := Rows{Ports: []Port{wantPort()}}
	for i := range 300 {
		for _, now := range []Rows{want, {}} {
			mustApply(t, s, testKey, now)
			owned, named := s.Rows(testKey, Rows{}), s.Rows("another", want)
			if len(owned.Ports) != len(now.Ports) || len(named.Ports) != len(now.Ports) {
				t.Fatalf("round %d: want %d port, got %d by its owner and %d by its name", i, len(now.Ports), len(owned.Ports), len(named.Ports))
			}
		}
	}
	// That it went before may be told after it has come again.
	mustApply(t, s, testKey, want)
	rows := s.session.Cache().Table(nb.LogicalSwitchPortTable)
	uuid := rowUUID(nb.LogicalSwitchPortTable, wantPort().Name)
	s.index.remove(nb.LogicalSwitchPortTable, rows.Row(uuid))
	if have := s.Rows(testKey, Rows{}); len(have.Ports) != 1 {
		t.Errorf("after a late event: %d ports", len(have.Ports))
	}
	// What the index has of former keys and names is not given for them.
	s.index.put(uuid, handle{table: nb.LogicalSwitchPortTable, owner: "former"}, handle{table: nb.LogicalSwitchPortTable, name: "former"})
	if have := s.Rows("former", Rows{Ports: []Port{{Name: "former"}}}); len(have.Ports) != 0 {
		t.Errorf("for what it was before: %d ports", len(have.Ports))
	}
	// What is gone is gone from the index, too, when libovsdb has told of it.
	told := make(chan string, 1000)
	s.Watch(func(key string) { told <- key })
	mustApply(t, s, testKey, Rows{})
	late := time.After(10 * time.Second)
	for len(s.index.find(handle{table: nb.LogicalSwitchPortTable, owner: testKey})) > 0 {
		select {
		case <-told:
		case <-late:
			t.Fatal("a row that is gone stays in the index")
		}
	}
}

// A row that somebody gives another owner is found by that, and not by the former one.
func TestOwnerChanges(t *testing.T) {
	srv := startServer(t)
	s := session(t, srv)
	mustApply(t, s, "network/net", networkRows())
	mustApply(t, s, testKey, Rows{Ports: []Port{wantPort()}})
	told := make(chan string, 1000)
	s.Watch(func(key string) { told <- key })
	srv.nbctl(t, "set", "Logical_Switch_Port", wantPort().Name, `external_ids:"ovn-dhcp-ipam/owner"=port/other`)
	late := time.After(10 * time.Second)
	for key := ""; key != "port/other"; {
		select {
		case key = <-told:
		case <-late:
			t.Fatal("nothing is told of the new owner")
		}
	}
	if before, now := s.Rows(testKey, Rows{}), s.Rows("port/other", Rows{}); len(before.Ports) != 0 || len(now.Ports) != 1 {
		t.Errorf("%d ports of the former owner, %d of the new one", len(before.Ports), len(now.Ports))
	}
}
