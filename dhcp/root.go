// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// InRoot is where this process finds what others, whose root directory is at root here,
// find at an absolute path: a container may have the host's root directory mounted
// somewhere. Symbolic links among the directories on the way are followed below root;
// /var/run is often one. The last element is not looked at: it may be a file of
// /proc/PID/ns. An empty root is this process's own.
func InRoot(root, path string) (string, error) {
	if root == "" {
		return path, nil
	}
	name := filepath.Base(path)
	if !filepath.IsAbs(path) || name == "/" || name == "." || name == ".." {
		return "", fmt.Errorf("looking for %q below %s: not an absolute path of a file", path, root)
	}
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		// It says nothing of what is there for others.
		return "", fmt.Errorf("opening root directory %s: %v", root, err)
	}
	defer unix.Close(at)
	dir, err := openInRoot(at, filepath.Dir(path))
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return filepath.Join(root, path), nil // before Linux 5.6, links to absolute paths are not found
	}
	if err != nil {
		return "", fmt.Errorf("looking for %s below %s: %w", path, root, err)
	}
	defer unix.Close(dir)
	found, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil {
		return "", fmt.Errorf("path of %s below %s: %v", filepath.Dir(path), root, err)
	}
	return filepath.Join(found, name), nil
}

// rootTries is how often to look for a directory while others are renamed or mounted
// anywhere on the machine: see openat2(2), EAGAIN.
const rootTries = 1000

// openInRoot opens a directory below that of a file descriptor.
func openInRoot(root int, dir string) (fd int, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	for range rootTries {
		fd, err = unix.Openat2(root, dir, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}
