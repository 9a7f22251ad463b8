// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ownedMark is a file in every directory that an option has made a lab's.
const ownedMark = "this-directory-is-removed-with-its-lab"

// maxSocketPath is the longest path of a unix socket, unix(7).
const maxSocketPath = 107

// longestSocket is the longest socket path below a lab's directory: pids have
// up to seven digits.
const longestSocket = "node100/ovn-controller.1234567.ctl"

// claim makes dir the directory of one lab until the returned file is closed.
// What an earlier lab has left there is removed. An empty dir means a new one
// in the private /run.
func claim(dir string) (string, *os.File, error) {
	if dir == "" {
		dir, err := os.MkdirTemp("/run", "lab")
		if err != nil {
			return "", nil, err
		}
		lock, err := os.Open(dir)
		return dir, lock, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	if over := len(filepath.Join(dir, longestSocket)) - maxSocketPath; over > 0 {
		return "", nil, fmt.Errorf("directory %s is too long by %d bytes for the unix sockets below it", dir, over)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	if err := takeOver(dir, lock); err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return dir, lock, nil
}

// takeOver locks dir and leaves nothing in it but the mark. The kernel frees
// the lock when its owner ends, and with that owner all its processes ended.
func takeOver(dir string, lock *os.File) error {
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("directory %s belongs to a lab that is running", dir)
	} else if err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	mark := filepath.Join(dir, ownedMark)
	if _, err := os.Stat(mark); err != nil && len(entries) > 0 {
		return fmt.Errorf("directory %s is not empty and was not made by a lab", dir)
	}
	if err := empty(dir); err != nil {
		return fmt.Errorf("remove what an earlier lab left: %w", err)
	}
	return os.WriteFile(mark, nil, 0o644)
}

// empty removes everything in dir but the mark. While that is there, the next
// lab can finish a removal that was cut short.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != ownedMark {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
