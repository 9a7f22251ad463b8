// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// lookTime is how long a look at a device may take, so that one that gets no answer does
// not hold up others for good.
const lookTime = 5 * time.Second

// host is the host's network namespace, which is this process's own.
type host struct {
	*netlink.Handle
	space netns.NsHandle
}

func openHost() (*host, error) {
	space, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("own netns: %w", err)
	}
	h := &host{space: space}
	if h.Handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
		err = h.SetSocketTimeout(lookTime)
	}
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("opening rtnetlink: %w", err)
	}
	return h, nil
}

// Close ends what is open, be it a part.
func (h *host) Close() {
	if h.Handle != nil {
		h.Handle.Close()
	}
	h.space.Close()
}
