// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) keeps named network namespaces.
const netnsDir = "/run/netns"

// A namespace is a network namespace, or a network and a mount namespace, that
// lives as long as its files are open.
type namespace struct {
	net *os.File
	mnt *os.File // nil: the mount namespace is ours
}

// newNamespace makes a network namespace with its loopback device up.
func newNamespace() (*namespace, error) {
	n := &namespace{}
	err := inNewNamespaces(unix.CLONE_NEWNET, func() error { return n.take(nil) })
	return n, errors.Join(err, n.closeIf(err))
}

// newNodeNamespace makes a network and a mount namespace. The network namespace
// is the one at path, if that is not "". Binds are pairs of a directory and the
// place where it is mounted inside.
func newNodeNamespace(binds [][2]string, path string) (*namespace, error) {
	n := &namespace{}
	flags, enter := unix.CLONE_NEWNET|unix.CLONE_NEWNS, func() error { return nil }
	if path != "" {
		flags, enter = unix.CLONE_NEWNS, func() error { return enterNetns(path) }
	}
	err := inNewNamespaces(flags, func() error {
		if err := enter(); err != nil {
			return err
		}
		return n.take(binds)
	})
	return n, errors.Join(err, n.closeIf(err))
}

// enterNetns moves the calling thread to the network namespace at path.
func enterNetns(path string) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer ns.Close()
	if err := netns.Set(ns); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// take opens the calling thread's namespaces, after it has set them up.
func (n *namespace) take(binds [][2]string) (err error) {
	if n.net, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	if binds == nil {
		return nil
	}
	// Mounts made outside arrive (a pod's netns), those made inside don't leave.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slaves: %w", err)
	}
	// A sysfs shows the devices of the network namespace it was mounted in.
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	for _, b := range binds {
		if err := unix.Mount(b[0], b[1], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s to %s: %w", b[0], b[1], err)
		}
	}
	n.mnt, err = os.Open("/proc/thread-self/ns/mnt")
	return err
}

func (n *namespace) close() error {
	err := n.net.Close()
	if n.mnt != nil {
		err = errors.Join(err, n.mnt.Close())
	}
	return err
}

func (n *namespace) closeIf(err error) error {
	if err == nil || n.net == nil {
		return nil
	}
	return n.close()
}

// command is a command inside, whose process is a child of ours: nsenter
// replaces itself by it.
func (n *namespace) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{"--net=" + n.path()}
	if n.mnt != nil {
		enter = append(enter, "--mount="+pathOf(n.mnt))
	}
	return nsenter(ctx, enter, name, args)
}

// path is a path of the network namespace.
func (n *namespace) path() string { return pathOf(n.net) }

// pathOf is a path by which any process of the lab can open what f is.
func pathOf(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }

func nsenter(ctx context.Context, enter []string, name string, args []string) *exec.Cmd {
	if strings.Contains(name, "/") {
		// A mount namespace is entered at its root directory.
		if abs, err := filepath.Abs(name); err == nil {
			name = abs
		}
	}
	return exec.CommandContext(ctx, "nsenter", slices.Concat(enter, []string{"--", name}, args)...)
}

// links opens a netlink handle for the devices inside; the caller closes it.
func (n *namespace) links() (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(n.net.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return h, nil
}

// inNewNamespaces runs do on a thread that has left the process's namespaces
// for new ones. The thread ends when do returns.
func inNewNamespaces(flags int, do func() error) error {
	errc := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread can't end, and what it is in is what
			// /proc/self shows. Another one does it while this is held.
			errc <- inNewNamespaces(flags, do)
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Unshare(flags); err != nil {
			errc <- fmt.Errorf("make namespaces: %w", err)
			return
		}
		errc <- do()
	}()
	return <-errc
}

// A namespaceID tells namespaces apart.
type namespaceID struct{ dev, ino uint64 }

func identify(path string) (namespaceID, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return namespaceID{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return namespaceID{uint64(st.Dev), st.Ino}, nil
}

// processesIn returns the pids of the processes whose network namespace is
// among ids. A zombie has none.
func processesIn(ids map[namespaceID]bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if id, err := identify(filepath.Join("/proc", e.Name(), "ns/net")); err == nil && ids[id] {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
