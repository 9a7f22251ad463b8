// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// device is an attachment's interface. It is worked on from outside of its network
// namespace.
type device struct {
	*netlink.Handle
	link netlink.Link
}

// open opens the interface.
func (p place) open() (*device, error) {
	fail := func(err error) (*device, error) {
		return nil, fmt.Errorf("opening interface %s in netns %q: %w", p.IfName, p.Netns, err)
	}
	space, err := ns.GetNS(p.Netns)
	if err != nil {
		return fail(err)
	}
	defer space.Close()
	h, err := netlink.NewHandleAt(netns.NsHandle(space.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fail(err)
	}
	err = h.SetSocketTimeout(lookTime)
	var link netlink.Link
	if err == nil {
		link, err = h.LinkByName(p.IfName)
	}
	if err != nil {
		h.Close()
		return fail(err)
	}
	return &device{h, link}, nil
}

// gone reports whether an interface can't be opened because it, or its network
// namespace, does not exist any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &ns.NSPathNotExistErr{}) || errors.As(err, &ns.NSPathNotNSErr{}) ||
		errors.As(err, &netlink.LinkNotFoundError{})
}
