// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// errNotNetns is what is at the path of a network namespace that is gone, if its mount
// point was left behind.
var errNotNetns = errors.New("not a network namespace")

// inNetns has do run in the network namespace at path, and tells which one that was. It is
// the WithNetNSPath of CNI's package ns without a goroutine, and so a thread, of its own,
// which takes longer than all else that it is used for here. If there is no way back, the
// thread stays the caller's, and ends with its goroutine.
func inNetns(path string, do func() error) (space, error) {
	target, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(target)
	var s unix.Stat_t
	if err := unix.Fstat(target, &s); err != nil {
		return "", err
	}
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return "", fmt.Errorf("own netns: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EINVAL) {
			err = errNotNetns
		}
		return "", fmt.Errorf("entering netns: %w", err)
	}
	err = do()
	if back := netns.Set(own); back != nil {
		return "", errors.Join(err, fmt.Errorf("leaving netns: %w", back))
	}
	runtime.UnlockOSThread()
	return spaceOf(s), err
}

// space names a network namespace: by its inode, of which there is one at a time. The
// numbers of namespaces that are gone are used again. The empty one is the process's own.
type space string

func spaceOf(s unix.Stat_t) space { return space(fmt.Sprintf("%d:%d", s.Dev, s.Ino)) }
