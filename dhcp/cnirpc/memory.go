// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"context"
	"runtime/debug"
	"time"
)

// quietTime is how long there has to be no call before memory is given back.
const quietTime = time.Second

// thrift gives the memory that calls have used back to the machine when there have been
// none for a while. Pods come in bursts; left to itself, the runtime keeps what a burst
// has taken, many times what the leases need, until the next one.
func (s *Server) thrift(ctx context.Context) {
	for {
		select {
		case <-s.called:
		case <-ctx.Done():
			return
		}
		for quiet := false; !quiet; {
			select {
			case <-s.called:
			case <-time.After(quietTime):
				quiet = true
			case <-ctx.Done():
				return
			}
		}
		debug.FreeOSMemory()
	}
}

// noteCall notes that there was a call.
func (s *Server) noteCall() {
	select {
	case s.called <- struct{}{}:
	default:
	}
}
