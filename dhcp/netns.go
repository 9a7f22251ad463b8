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

var (
	// errNotNetns is what is at the path of a network namespace that is gone, if its mount
	// point was left behind.
	errNotNetns = errors.New("not a network namespace")
	// errAnotherNetns is what is there if the path is used again.
	errAnotherNetns = errors.New("another one is there by now")
)

// inNetns has do run in the network namespace at path, and tells which one that was. It is
// the WithNetNSPath of CNI's package ns without a goroutine, and so a thread, of its own,
// which takes longer than all else that it is used for here. If wanted is not empty, any
// other namespace is errAnotherNetns.
func inNetns(path string, wanted space, do func() error) (space, error) {
	target, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(target)
	var s unix.Stat_t
	if err := unix.Fstat(target, &s); err != nil {
		return "", err
	}
	found := spaceOf(s)
	if wanted != "" && found != wanted {
		return "", errAnotherNetns
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
	defer func() {
		if back := netns.Set(own); back != nil {
			// All that the caller does from now on would be done to the wrong namespace. The
			// thread stays locked, and so ends with the goroutine.
			panic(fmt.Sprintf("no way back out of netns %s: %v", path, back))
		}
		runtime.UnlockOSThread()
	}()
	return found, do()
}

// space names a network namespace: by its inode, of which there is one at a time. The
// numbers of namespaces that are gone are used again. The empty one is the process's own.
type space string

func spaceOf(s unix.Stat_t) space { return space(fmt.Sprintf("%d:%d", s.Dev, s.Ino)) }
