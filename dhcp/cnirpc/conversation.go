// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/rpc"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// handshakeTime bounds what comes before the calls.
const handshakeTime = 10 * time.Second

// The server's part of rpc.DialHTTP.
const (
	connected = "HTTP/1.0 200 Connected to Go RPC\n\n"
	refused   = "HTTP/1.0 404 Not Found\n\n"
)

// converse answers the calls of one connection. They end when the caller hangs up, or
// with ctx.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	// Who has stopped reading knows of no more calls, but can still answer.
	stop := context.AfterFunc(ctx, func() { conn.CloseRead() })
	defer stop()

	// A connection that can't be given a deadline is broken: the read tells.
	_ = conn.SetReadDeadline(time.Now().Add(handshakeTime))
	in := bufio.NewReader(conn)
	request, err := http.ReadRequest(in)
	if err != nil {
		if err != io.EOF { // somebody has looked whether the daemon is there
			s.cfg.Log.Warn("connection without a request", "err", err)
		}
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	answer := connected
	if request.Method != http.MethodConnect || request.URL.Path != rpc.DefaultRPCPath {
		answer = refused
	}
	if _, err := io.WriteString(conn, answer); err != nil || answer != connected {
		return
	}
	server := rpc.NewServer()
	if err := server.RegisterName("DHCP", &conversation{s, ctx}); err != nil {
		panic(err) // its methods are no RPC methods
	}
	server.ServeConn(&stream{conn, in, hangUp})
}

// stream is a connection that tells when nothing more can come.
type stream struct {
	net.Conn
	in    io.Reader
	ended context.CancelFunc
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.in.Read(b)
	if err != nil {
		s.ended()
	}
	return n, err
}

// conversation is what the caller at the other end of a connection may call. net/rpc
// gives its methods no context, so each connection has a value of its own.
type conversation struct {
	server *Server
	ctx    context.Context
}

// Allocate is ADD and CHECK: it gets a lease, or returns the one that the attachment
// has.
func (c *conversation) Allocate(args *skel.CmdArgs, result *types100.Result) error {
	return c.server.log("Allocate", args, func() error {
		ctx, cancel := context.WithTimeout(c.ctx, c.server.cfg.Timeout)
		defer cancel()
		return c.server.allocate(ctx, args, result)
	})
}

// Release is DEL. It gives back what the attachment has, be it nothing. Once begun, it
// is finished.
func (c *conversation) Release(args *skel.CmdArgs, _ *struct{}) error {
	return c.server.log("Release", args, func() error {
		return c.server.release(context.WithoutCancel(c.ctx), args)
	})
}

func (s *Server) log(method string, args *skel.CmdArgs, call func() error) error {
	began := time.Now()
	err := call()
	s.noteCall()
	s.cfg.Log.Info("call of the CNI plugin dhcp", "method", method, "container", args.ContainerID, "ifname", args.IfName,
		"took", time.Since(began).Round(time.Millisecond), "err", err)
	return err
}
