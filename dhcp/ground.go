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
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ground is where a Keeper's clients live: the kernel's network namespaces, but for
// tests. What is not there, or is another's by now, is errGone.
type ground interface {
	// identify names the namespace at a path, or that of opened if that is not nil, as no
	// other one is named, even one that later has the same path.
	identify(netns string, opened *Link) (string, error)
	// open opens a client's interface. If own is valid, it is the leased address,
	// whose client port is occupied until the port is closed: see Link.occupy.
	open(id identity, own netip.Addr) (port, error)
}

// errGone is an interface or a network namespace that is gone.
var errGone = errors.New("interface is gone")

// kernel is the ground of this machine since its last start, as it is seen by those whose
// root directory is root: see InRoot.
type kernel struct{ boot, root string }

func newKernel(root string) (kernel, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return kernel{}, fmt.Errorf("boot id: %w", err)
	}
	return kernel{strings.TrimSpace(string(boot)), root}, nil
}

// identify goes by the namespace's inode and the machine's boot id. The numbers of
// namespaces that are gone are used again, so that open looks at the interface too.
func (k kernel) identify(netns string, opened *Link) (string, error) {
	switch {
	case netns == "":
		return k.boot, nil // this process's own is always the same one
	case opened != nil:
		return k.boot + "/" + string(opened.space), nil
	}
	var s unix.Stat_t
	path, err := InRoot(k.root, netns)
	if err == nil {
		err = unix.Stat(path, &s)
	}
	if k.isGone(netns, err) {
		err = fmt.Errorf("%w: %w", errGone, err)
	}
	if err != nil {
		return "", fmt.Errorf("netns %q: %w", netns, err)
	}
	return k.boot + "/" + string(spaceOf(s)), nil
}

func (k kernel) open(id identity, own netip.Addr) (port, error) {
	boot, wanted, _ := strings.Cut(id.Place, "/")
	if boot != k.boot {
		return nil, fmt.Errorf("netns %q: %w: the machine was started since", id.Netns, errGone)
	}
	path, err := id.Netns, error(nil)
	if path != "" {
		path, err = InRoot(k.root, path)
	}
	var link *Link
	if err == nil {
		link, err = openLink(path, space(wanted), id.IfName, own)
	}
	if k.isGone(id.Netns, err) {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(link.hw, id.HardwareAddr) {
		err := fmt.Errorf("%s in netns %q: %w: its hardware address is %s by now", id.IfName, id.Netns, errGone, link.hw)
		return nil, errors.Join(err, link.Close())
	}
	return link, nil
}

// isGone reports whether an error says that an interface, or its network namespace, is gone.
// If not even the directory is there that the namespace had its path in, it is this process
// that can't see it: a container without the host's /run, say. Only of a process nothing is
// left.
func (k kernel) isGone(netns string, err error) bool {
	if !errors.Is(err, fs.ErrNotExist) {
		return errors.Is(err, errNotNetns) || errors.Is(err, errAnotherNetns) || errors.Is(err, unix.ENODEV)
	}
	if strings.HasPrefix(netns, "/proc/") {
		return true
	}
	path, err := InRoot(k.root, netns)
	if err == nil {
		_, err = os.Stat(filepath.Dir(path))
	}
	return err == nil
}
