// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// firstActivated is the number of the first file that systemd passes.
const firstActivated = 3

// Listen returns the listener that systemd has passed to this process
// (sd_listen_fds(3)), or else makes the socket, in the place of one that nobody listens
// on any more. Its directory is made if need be, for root only.
func Listen(socket string) (*net.UnixListener, error) {
	if os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		return activated(os.Getenv("LISTEN_FDS"))
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, fmt.Errorf("directory of the socket: %w", err)
	}
	if conn, err := net.Dial("unix", socket); err == nil {
		return nil, errors.Join(fmt.Errorf("socket %s: another daemon listens there", socket), conn.Close())
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("stale socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket: %w", err), listener.Close())
	}
	return listener, nil
}

// activated is the one listener that systemd has passed. The socket is systemd's, and
// stays when the listener is closed.
func activated(count string) (*net.UnixListener, error) {
	if count != "1" {
		return nil, fmt.Errorf("socket activation: %q sockets were passed, want one", count)
	}
	f := os.NewFile(firstActivated, "socket from systemd")
	listener, err := net.FileListener(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("socket activation: %w", err)
	}
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("socket activation: %s is not a unix socket", listener.Addr()), listener.Close())
	}
	return unixListener, nil
}
