// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ground is where a Keeper's clients live: the kernel's network namespaces, but for
// tests. What is not there, or is another's by now, is errGone.
type ground interface {
	// identify names the namespace at a path, as no other one is named, even one
	// that later has the same path.
	identify(netns string) (string, error)
	// open opens a client's interface, or takes opened for it if that is not nil. If own
	// is valid, it is the leased address, whose client port is occupied until the port is
	// closed: see Link.occupy.
	open(id identity, own netip.Addr, opened *Link) (port, error)
}

// errGone is an interface or a network namespace that is gone.
var errGone = errors.New("interface is gone")

// kernel is the ground of this machine since its last start.
type kernel struct{ boot string }

func newKernel() (kernel, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return kernel{}, fmt.Errorf("boot id: %w", err)
	}
	return kernel{strings.TrimSpace(string(boot))}, nil
}

// identify goes by the namespace's inode and the machine's boot id. The numbers of
// namespaces that are gone are used again, so that open looks at the interface too.
func (k kernel) identify(netns string) (string, error) {
	if netns == "" {
		return k.place(""), nil // this process's own is always the same one
	}
	var s unix.Stat_t
	if err := unix.Stat(netns, &s); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
		return "", fmt.Errorf("netns %q: %w", netns, err)
	}
	return k.place(spaceOf(s)), nil
}

// place names a network namespace beyond this start of the machine.
func (k kernel) place(s space) string {
	if s == "" {
		return k.boot
	}
	return k.boot + "/" + string(s)
}

func (k kernel) open(id identity, own netip.Addr, opened *Link) (port, error) {
	if opened != nil {
		return opened, k.admit(id, opened)
	}
	link, err := openLink(id.Netns, id.IfName, own)
	if interfaceGone(err) {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if err != nil {
		return nil, err
	}
	if err := k.admit(id, link); err != nil {
		return nil, errors.Join(err, link.Close())
	}
	return link, nil
}

// admit returns an error if a Link is not the client's.
func (k kernel) admit(id identity, link *Link) error {
	switch {
	case k.place(link.space) != id.Place:
		return fmt.Errorf("netns %q: %w: it is another namespace by now", id.Netns, errGone)
	case !bytes.Equal(link.hw, id.HardwareAddr):
		return fmt.Errorf("%s in netns %q: %w: its hardware address is %s by now", id.IfName, id.Netns, errGone, link.hw)
	}
	return nil
}

func interfaceGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotNetns) || errors.Is(err, unix.ENODEV)
}
