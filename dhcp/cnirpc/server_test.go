// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// start runs a server, which the test's end ends.
func start(t *testing.T) (socket string) {
	t.Helper()
	dir := t.TempDir()
	s, err := New(Config{StateDir: filepath.Join(dir, "state"), Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "run", "dhcp.sock")
	listener, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, listener) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return socket
}

func TestCallsOfAClient(t *testing.T) {
	socket := start(t)
	client, err := rpc.DialHTTP("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	args := cmdArgs(`{"type":"dhcp"}`)
	args.Netns = filepath.Join(t.TempDir(), "none")
	if err := client.Call("DHCP.Allocate", args, &types100.Result{}); err == nil || !strings.Contains(err.Error(), args.Netns) {
		t.Errorf("Allocate without a network namespace: %v", err)
	}
	args.Netns = "relative"
	if err := client.Call("DHCP.Allocate", args, &types100.Result{}); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("Allocate with a relative path: %v", err)
	}
	args.Netns = ""
	if err := client.Call("DHCP.Release", args, &struct{}{}); err != nil {
		t.Errorf("Release of what there is none: %v", err)
	}
	if err := client.Call("DHCP.Release", &skel.CmdArgs{}, &struct{}{}); err == nil {
		t.Error("a Release of nothing was accepted")
	}
}

func TestOtherRequestsAreRefused(t *testing.T) {
	socket := start(t)
	for _, request := range []string{"GET /_goRPC_ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT /other HTTP/1.0\n\n", "nonsense\n\n"} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 100)
		n, _ := conn.Read(answer)
		if strings.Contains(string(answer[:n]), "200") {
			t.Errorf("%q was answered by %q", request, answer[:n])
		}
	}
}

func TestListen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "dhcp.sock")
	first, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	first.SetUnlinkOnClose(false)
	if _, err := Listen(socket); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("a socket that is listened on: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(socket)
	if err != nil {
		t.Fatalf("a stale socket: %v", err)
	}
	defer second.Close()
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	if _, err := Listen(socket); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("a socket for another process was used: %v", err)
	}
}

func TestStateIsOneDaemons(t *testing.T) {
	cfg := Config{StateDir: t.TempDir(), Timeout: time.Second, Log: slog.New(slog.DiscardHandler)}
	first, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("second daemon: %v", err)
	}
	runtime.KeepAlive(first) // which has the lock
}
