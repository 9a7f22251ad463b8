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
// somewhere. Symbolic links on the way are followed as they do; /var/run is often one. The
// last element of path is left as it is, since it may be a file of /proc/PID/ns. An empty
// root is this process's own.
func InRoot(root, path string) (string, error) {
	if root == "" {
		return path, nil
	}
	fail := func(err error) (string, error) { return "", fmt.Errorf("looking for %s below %s: %w", path, root, err) }
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(at)
	dir, err := unix.Openat2(at, filepath.Dir(path), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, unix.ENOSYS) {
		return filepath.Join(root, path), nil // before Linux 5.6 links out of root are not found
	}
	if err != nil {
		return fail(err)
	}
	defer unix.Close(dir)
	found, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil {
		return fail(err)
	}
	return filepath.Join(found, filepath.Base(path)), nil
}
