// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// device is an attachment's interface. It is worked on from outside of its network
// namespace.
type device struct {
	*netlink.Handle
	link netlink.Link
}

// open opens the interface of a place of the host whose root directory is at root.
func (p place) open(root string) (*device, error) {
	fail := func(err error) (*device, error) {
		return nil, fmt.Errorf("opening interface %s in netns %q: %w", p.IfName, p.Netns, err)
	}
	path, err := dhcp.InRoot(root, p.Netns)
	if err != nil {
		return fail(errors.New(err.Error())) // which is not to say that it is gone
	}
	space, err := ns.GetNS(path)
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

// configure works on the interface of a place, which has a lease. There is nothing to do for
// one that is gone, or in whose place there is another; the Keeper finds that out, too.
func (p place) configure(root string, lease dhcp.Lease, work func(*device, place) error) error {
	d, err := p.open(root)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if !bytes.Equal(d.link.Attrs().HardwareAddr, lease.HardwareAddr) {
		return nil
	}
	return work(d, p)
}
