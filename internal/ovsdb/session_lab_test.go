// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package ovsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"
)

const schema = `{"name":"Test","version":"1.0.0","tables":{"Item":{"isRoot":true,"columns":{"name":{"type":"string"}}}}}`

type item struct {
	UUID string `ovsdb:"_uuid"`
	Name string `ovsdb:"name"`
}

func config(t *testing.T, endpoints ...string) Config {
	t.Helper()
	db, err := model.NewClientDBModel("Test", map[string]model.Model{"Item": &item{}})
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Endpoint: strings.Join(endpoints, ","), Model: db, Log: slog.New(slog.DiscardHandler),
		Tables: []client.MonitorOption{client.WithTable(&item{})},
	}
}

// server is an ovsdb-server of the test's own.
type server struct {
	dir  string
	args []string
	cmd  *exec.Cmd
}

func (s *server) file(name string) string { return filepath.Join(s.dir, name) }
func (s *server) endpoint() string        { return "unix:" + s.file("sock") }

// newServer makes a server whose database create is to make.
func newServer(t *testing.T, create func(s *server), args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovsdb") // a short path: sockets have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	s := &server{dir: dir, args: args}
	t.Cleanup(func() {
		s.end()
		os.RemoveAll(dir)
	})
	if err := os.WriteFile(s.file("schema"), []byte(schema), 0o600); err != nil {
		t.Fatal(err)
	}
	create(s)
	s.start(t)
	return s
}

func standalone(t *testing.T, args ...string) *server {
	t.Helper()
	return newServer(t, func(s *server) { command(t, "ovsdb-tool", "create", s.file("db"), s.file("schema")) }, args...)
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *server) start(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command("ovsdb-server", append([]string{"--remote=p" + s.endpoint(), "--unixctl=" + s.file("ctl"),
		"--log-file=" + s.file("log"), s.file("db")}, s.args...)...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	command(t, "ovsdb-client", "--timeout=20", "wait", s.endpoint(), "Test", "connected")
}

// end kills the server.
func (s *server) end() {
	if s.cmd != nil && s.cmd.Process != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	}
}

func (s *server) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// port is the port of the server's pssl remote.
func (s *server) port(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(s.file("log"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`listening on port (\d+)`).FindSubmatch(log)
	if m == nil {
		t.Fatalf("no port in the log of ovsdb-server:\n%s", log)
	}
	return string(m[1])
}

// mute is an endpoint that accepts connections and never says anything.
func mute(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String() // the backlog accepts
}

func insert(name string) libovsdb.Operation {
	return libovsdb.Operation{Op: libovsdb.OperationInsert, Table: "Item", Row: libovsdb.Row{"name": name}}
}

// sessions runs sessions for as long as the test.
func sessions(t *testing.T, cfg Config) <-chan *Session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, done := make(chan *Session), make(chan struct{})
	go func() {
		defer close(done)
		Run(ctx, cfg, func(ctx context.Context, s *Session) error {
			select {
			case out <- s:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return out
}

func next(t *testing.T, sessions <-chan *Session) *Session {
	t.Helper()
	select {
	case s := <-sessions:
		return s
	case <-time.After(30 * time.Second):
		t.Fatal("no session")
		return nil
	}
}

func await(t *testing.T, what string, within time.Duration, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(within):
		t.Fatalf("%s did not happen within %v", what, within)
	}
}

func TestLostSessionIsReplaced(t *testing.T) {
	srv := standalone(t)
	all := sessions(t, config(t, srv.endpoint()))
	s := next(t, all)
	if err := s.Commit(t.Context(), insert("a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Await(t.Context(), func() (bool, error) { return s.Cache().Table("Item").Len() == 1, nil }); err != nil {
		t.Fatal(err)
	}
	srv.end()
	await(t, "the end of the session", 2*time.Second, s.ended) // sooner than by a probe
	if got := s.Cache().Table("Item").Len(); got != 1 {
		t.Errorf("cache of the ended session has %d rows", got)
	}
	if err := s.Commit(t.Context(), insert("b")); err == nil {
		t.Error("an ended session commits")
	}
	srv.start(t)
	s = next(t, all)
	if got := s.Cache().Table("Item").Len(); got != 1 {
		t.Errorf("cache of the next session has %d rows", got)
	}
}

func TestNothingLeaks(t *testing.T) {
	srv := standalone(t)
	cfg := config(t, srv.endpoint())
	count := func() (goroutines, files int) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(fds)
	}
	reason := errors.New("enough")
	once := func() {
		if _, err := runOnce(t.Context(), cfg, func(ctx context.Context, s *Session) error {
			if err := s.Commit(ctx, insert("a")); err != nil {
				return err
			}
			return reason
		}); !errors.Is(err, reason) {
			t.Fatal(err)
		}
	}
	once()
	goroutines, files := count()
	for range 50 {
		once()
	}
	// libovsdb's last goroutine of a session is at its end, but may not have ended.
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		nowGoroutines, nowFiles := count()
		if nowGoroutines <= goroutines && nowFiles <= files {
			return
		}
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines and %d files after 50 sessions, %d and %d after one\n%s",
				nowGoroutines, nowFiles, goroutines, files, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// A server that keeps its connections and answers nothing is given up.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	srv := standalone(t)
	s := next(t, sessions(t, config(t, srv.endpoint())))
	if err := s.probe(t.Context()); err != nil {
		t.Error(err)
	}
	srv.signal(t, syscall.SIGSTOP)
	await(t, "the end of the session", probeInterval+probeTimeout+2*time.Second, s.ended)
}

// A server that is stopped in the middle of a large request holds nobody up.
func TestServerThatStopsReading(t *testing.T) {
	t.Parallel()
	srv := standalone(t)
	s, err := dial(t.Context(), config(t, srv.endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	srv.signal(t, syscall.SIGSTOP)
	defer srv.signal(t, syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Transact(ctx, insert(strings.Repeat("x", 8<<20))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("large transaction: %v", err)
	}
	if err := s.probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("probe: %v", err)
	}
	closed := make(chan struct{})
	go func() { s.close(); close(closed) }()
	if _, err := s.Transact(t.Context(), insert("a")); !errors.Is(err, ErrEnded) {
		t.Errorf("transaction at the end: %v", err)
	}
	await(t, "the close", closeTimeout+2*time.Second, closed)
	srv.signal(t, syscall.SIGCONT)
	await(t, "the end of the connection", 10*time.Second, s.lost)
}

// hasty is an endpoint whose server ends the connection with its answer to a method. A
// real one that is killed does so in one of many attempts.
func hasty(t *testing.T, last string) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	answers := map[string]string{"list_dbs": `["Test"]`, "get_schema": schema, "monitor_cond": `{}`}
	serve := func(c net.Conn) {
		defer c.Close()
		requests := json.NewDecoder(c)
		for method := ""; method != last; {
			var request struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			if requests.Decode(&request) != nil {
				return
			}
			method = request.Method
			fmt.Fprintf(c, `{"id":%s,"error":null,"result":%s}`, request.ID, answers[method])
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return "unix:" + l.Addr().String()
}

// A server that ends while it is dialled does no harm, and its end is noticed.
func TestServerThatEndsAtOnce(t *testing.T) {
	for _, last := range []string{"list_dbs", "get_schema", "monitor_cond"} {
		t.Run(last, func(t *testing.T) {
			cfg := config(t, hasty(t, last))
			for range 200 {
				began := time.Now()
				c, err := connect(t.Context(), cfg.Endpoint, nil, cfg.Model, func() {}, cfg.Tables...)
				if err == nil {
					await(t, "the end of the connection", closeTimeout, c.lost)
					c.close()
				}
				if took := time.Since(began); took >= closeTimeout {
					t.Fatalf("the connection ended after %v, with error %v", took, err)
				}
			}
		})
	}
}

func TestDeadServersInTheList(t *testing.T) {
	t.Parallel()
	srv := standalone(t)
	dir := t.TempDir()
	silent := "unix:" + mute(t, "unix", filepath.Join(dir, "mute"))
	tls := newAuthority(t, "ca").issue(t, t.TempDir())
	refusing := "unix:" + filepath.Join(dir, "nobody")
	slow := []string{silent, "tcp:" + mute(t, "tcp", "127.0.0.1:0"), "ssl:" + mute(t, "tcp", "127.0.0.1:0"), refusing}

	cfg := config(t, append(slow, srv.endpoint())...)
	cfg.TLS = tls
	began := time.Now()
	s, err := dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	if took := time.Since(began); took > connectTimeout/2 {
		t.Errorf("dialling took %v beside servers that are down", took)
	}

	cfg = config(t, slow...)
	cfg.TLS = tls
	began = time.Now()
	if s, err = dial(t.Context(), cfg); err == nil {
		s.close()
		t.Fatal("a session with servers that are down")
	}
	if took := time.Since(began); took > connectTimeout+3*time.Second {
		t.Errorf("dialling of servers that are down took %v", took)
	}
	for _, endpoint := range slow {
		if !strings.Contains(err.Error(), endpoint) {
			t.Errorf("the error does not say what is with %s: %v", endpoint, err)
		}
	}
}

func TestClusterLeader(t *testing.T) {
	t.Parallel()
	var servers []*server
	var endpoints []string
	for i := range 3 {
		s := newServer(t, func(s *server) {
			if i == 0 {
				command(t, "ovsdb-tool", "create-cluster", s.file("db"), s.file("schema"), "unix:"+s.file("raft"))
			} else {
				command(t, "ovsdb-tool", "join-cluster", s.file("db"), "Test", "unix:"+s.file("raft"), "unix:"+servers[0].file("raft"))
			}
		})
		servers, endpoints = append(servers, s), append(endpoints, s.endpoint())
	}
	all := sessions(t, config(t, endpoints...))
	leader := func(s *Session) *server {
		for _, srv := range servers {
			if srv.endpoint() == s.CurrentEndpoint() {
				return srv
			}
		}
		t.Fatalf("session with %s", s.CurrentEndpoint())
		return nil
	}
	rows := 0
	use := func(s *Session) *server {
		t.Helper()
		srv := leader(s)
		if status := command(t, "ovs-appctl", "-t", srv.file("ctl"), "cluster/status", "Test"); !strings.Contains(status, "Role: leader") {
			t.Errorf("the session's server does not lead:\n%s", status)
		}
		if err := s.Commit(t.Context(), insert(fmt.Sprint(rows))); err != nil {
			t.Fatal(err)
		}
		rows++
		if err := s.Await(t.Context(), func() (bool, error) { return s.Cache().Table("Item").Len() == rows, nil }); err != nil {
			t.Fatal(err)
		}
		return srv
	}
	s := next(t, all)
	for range 2 { // the leader dies
		srv := use(s)
		srv.end()
		s = next(t, all)
		srv.start(t)
	}
	// The leader hangs until there is another, and keeps its connections.
	srv := use(s)
	srv.signal(t, syscall.SIGSTOP)
	others := config(t, slices.DeleteFunc(endpoints, func(e string) bool { return e == srv.endpoint() })...)
	next(t, sessions(t, others))
	srv.signal(t, syscall.SIGCONT)
	await(t, "the end of the session", 5*time.Second, s.ended)
	if s = next(t, all); leader(s) == srv {
		t.Error("session with the former leader")
	}
	use(s)
}

// sslServer is a server that takes ssl with the files of a certificate.
func sslServer(t *testing.T, files TLS) (endpoint string) {
	t.Helper()
	s := standalone(t, "--remote=pssl:0:127.0.0.1", "--private-key="+files.PrivateKey, "--certificate="+files.Certificate, "--ca-cert="+files.CACert)
	return "ssl:127.0.0.1:" + s.port(t)
}

func TestSSL(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	cfg := config(t, sslServer(t, ca.issue(t, t.TempDir())))
	dir := t.TempDir()
	cfg.TLS = ca.issue(t, dir)
	refused := func(when, reason string) {
		t.Helper()
		s, err := dial(t.Context(), cfg)
		if err == nil {
			s.close()
		}
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("dial %s: error %v, want one with %q", when, err, reason)
		}
	}
	first, err := dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()

	other.issue(t, dir)
	refused("with the certificates of another authority", "signed by unknown authority")
	own := other.issue(t, t.TempDir())
	ca.issue(t, dir)
	cfg.TLS.PrivateKey, cfg.TLS.Certificate = own.PrivateKey, own.Certificate
	refused("with a certificate of another authority", "ssl:")
	cfg.TLS = ca.issue(t, dir)
	second, err := dial(t.Context(), cfg)
	if err != nil {
		t.Fatalf("with renewed files: %v", err)
	}
	defer second.close()
	for _, s := range []*Session{first, second} {
		if err := s.Commit(t.Context(), insert("a")); err != nil {
			t.Error(err)
		}
	}
}

// The certificates of ovs-pki are those of most installations.
func TestSSLWithOVSPKI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pki := func(args ...string) {
		cmd := exec.Command("ovs-pki", append([]string{"--dir=" + filepath.Join(dir, "pki"), "--log=" + filepath.Join(dir, "log"), "--batch"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	pki("init")
	pki("req+sign", "nb", "switch")
	cfg := config(t)
	cfg.TLS = TLS{
		PrivateKey: filepath.Join(dir, "nb-privkey.pem"), Certificate: filepath.Join(dir, "nb-cert.pem"),
		CACert: filepath.Join(dir, "pki/switchca/cacert.pem"),
	}
	cfg.Endpoint = sslServer(t, cfg.TLS)
	s, err := dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
}
