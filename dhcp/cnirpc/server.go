// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package cnirpc is the daemon that the CNI plugin "dhcp" calls, on a dhcp.Keeper:
// any CNI plugin whose ipam.type is dhcp gets leases that outlive this process, are
// prolonged, and are given back.
//
// The plugin is that of github.com/containernetworking/plugins, unmodified. It makes
// one call of net/rpc, over HTTP CONNECT on a unix socket, in the host's network
// namespace.
package cnirpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// DefaultSocket is where the plugin looks for the daemon.
const DefaultSocket = "/run/cni/dhcp.sock"

// Config is what a Server needs. StateDir, Timeout and Log are required.
type Config struct {
	// StateDir is the directory of the records. It is made if need be, and is the
	// Server's alone.
	StateDir string
	// HostPrefix is where the host's root directory is found, which the paths of network
	// namespaces start from. It may be another one at each start.
	HostPrefix string
	// Timeout is the time for one Allocate.
	Timeout time.Duration
	// Probe has an address asked for by ARP before it is used: see dhcp.Config.
	Probe bool
	Log   *slog.Logger
}

// Server answers the plugin's calls.
type Server struct {
	cfg    Config
	keeper *dhcp.Keeper
	turns  turns
	host   *host
	called chan struct{} // has room for one sign of a call
	// closing counts the Links being closed, which may outlive their calls.
	closing sync.WaitGroup
}

// New reads the records. It locks them until Run ends.
func New(cfg Config) (*Server, error) {
	if cfg.StateDir == "" || cfg.Log == nil || cfg.Timeout <= 0 {
		return nil, errors.New("server of the CNI plugin dhcp: StateDir, Log and a positive Timeout are required")
	}
	s := &Server{cfg: cfg, turns: turns{taken: map[string]*turn{}}, called: make(chan struct{}, 1)}
	var err error
	if s.host, err = openHost(); err != nil {
		return nil, err
	}
	s.keeper, err = dhcp.NewKeeper(dhcp.KeeperConfig{
		Dir:         filepath.Join(cfg.StateDir, "leases"),
		Root:        cfg.HostPrefix,
		OnChange:    s.follow,
		OnLost:      s.withdraw,
		SendRelease: s.releaseElsewhere,
		Log:         cfg.Log,
	})
	if err != nil {
		s.host.Close()
		return nil, err
	}
	return s, nil
}

// Run keeps the leases and answers calls until ctx ends. Then it closes the listener,
// ends the calls that are under way, and returns ctx's error when everything that it
// started has ended. It is called once.
func (s *Server) Run(ctx context.Context, listener *net.UnixListener) error {
	defer s.host.Close()
	defer s.closing.Wait()
	// A call that is ended gives back what it got: the Keeper outlives the calls.
	keeping, endKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer endKeeping()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.keeper.Run(keeping); keeping.Err() == nil {
			return err
		}
		return nil
	})
	g.Go(func() error {
		s.thrift(ctx)
		return nil
	})
	g.Go(func() error {
		defer endKeeping()
		return s.serve(ctx, listener)
	})
	kept, pending := s.keeper.Keys()
	s.cfg.Log.Info("serving the CNI plugin dhcp", "socket", listener.Addr(), "leases", len(kept), "pending", len(pending))
	return g.Wait()
}

// acceptAgain is how long to wait when there was no file descriptor for a connection.
const acceptAgain = 100 * time.Millisecond

// serve returns when all connections have ended.
func (s *Server) serve(ctx context.Context, listener *net.UnixListener) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	defer listener.Close()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case err == nil:
			connections.Go(func() { s.converse(ctx, conn) })
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
			s.cfg.Log.Warn("a connection has to wait", "err", err)
			select {
			case <-time.After(acceptAgain):
			case <-ctx.Done():
			}
		default:
			return fmt.Errorf("accepting a connection: %w", err)
		}
	}
}
