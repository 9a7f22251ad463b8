// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

// diskDir is on a disk, as the directory of the records is in earnest: the temporary
// directory of a session is in memory, where writing costs nothing.
const diskDir = "/var/tmp"

// diskSize is what a run's files have room in, in bytes.
const diskSize = 128 << 20

// newDisk makes a filesystem in a file on the disk and mounts it. It ends with this
// process's mount namespace, and the file with it. On the disk's own filesystem, a run
// would pay for those before it: ext4 passes over each inode that was freed in the last
// minutes before it takes one for a new file.
func newDisk(ctx context.Context) (dir string, err error) {
	image, err := os.CreateTemp(diskDir, "ovn-dhcp-ipam-leases-*.ext4")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, image.Close(), os.Remove(image.Name())) }()
	if err := image.Truncate(diskSize); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "disk-"); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", image.Name()},
		{"mount", "-o", "loop", image.Name(), dir},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	return dir, nil
}

// diskSamples is how many records are written, recordSize is their size in bytes.
const (
	diskSamples = 50
	recordSize  = 1200
)

// disk measures what it takes to put one record on this disk, so that it outlives a power
// failure: the daemon leaves that for later.
func (b *bench) disk() error {
	dir := filepath.Join(b.dir, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var t times.Times
	for i := range diskSamples {
		began := time.Now()
		if err := putRecord(dir, i); err != nil {
			return err
		}
		t = append(t, time.Since(began))
	}
	b.table.note = fmt.Sprintf("on a new ext4; until a record is on this disk it takes %s", percentiles(t))
	return nil
}

func putRecord(dir string, i int) error {
	temporary := filepath.Join(dir, "new")
	f, err := os.Create(temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, recordSize))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, fmt.Sprint(i))); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
