// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package session is one run of a benchmark: apart from the host, within a time limit,
// and of those of its parts that were named.
package session

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// Start isolates the program as lab.Isolate does, and so runs it again from its start. Its
// context ends after the limit, which is its cause then, or with SIGINT or SIGTERM; stop
// frees what it holds.
func Start(limit time.Duration) (ctx context.Context, stop func(), err error) {
	if err := lab.Isolate(); err != nil {
		return nil, nil, err
	}
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	return ctx, func() { cancel(); release() }, nil
}
