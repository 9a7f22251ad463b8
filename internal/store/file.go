// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// syncDelay is how long what is unsynced waits for more: one sync is for all.
const syncDelay = time.Second

// append adds a version to a record's file.
func (s *Store[T]) append(path string, version []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	return s.write(f, version)
}

// create writes the first version of a record to its file, which may be there, left by a
// write that has failed. It is for a Store that is deferred: after a power failure there
// can be a file whose version is not all there.
func (s *Store[T]) create(path string, version []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := s.write(f, version); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// replace makes a version the only one of a record's file.
func (s *Store[T]) replace(path string, version []byte) error {
	f, err := os.CreateTemp(s.dir, prefixTemp+"*")
	if err != nil {
		return err
	}
	err = s.write(f, version)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if s.deferred {
		return nil
	}
	return s.syncDir()
}

// write writes to a file, and closes it.
func (s *Store[T]) write(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil && !s.deferred {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir has the directory's entries written to the disk.
func (s *Store[T]) syncDir() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// unsync notes that a file has changed; s.mu is held.
func (s *Store[T]) unsync(key string) {
	if !s.deferred {
		return
	}
	s.unsynced[key] = struct{}{}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// SyncLater has what Put and Delete of a Store that is deferred do written to the disk, a
// little later, until ctx ends, and then at once what is left. It reports failures and
// goes on.
func (s *Store[T]) SyncLater(ctx context.Context, report func(error)) {
	for ended := false; !ended; {
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
		delay := time.NewTimer(syncDelay)
		select {
		case <-delay.C:
		case <-ctx.Done():
			ended = true
			delay.Stop()
		}
		if err := s.sync(); err != nil {
			report(fmt.Errorf("syncing records: %w", err))
		}
	}
}

// sync has what is unsynced written to the disk.
func (s *Store[T]) sync() error {
	s.mu.Lock()
	keys := s.unsynced
	s.unsynced = map[string]struct{}{}
	s.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	var failed error
	for key := range keys {
		path, err := s.path(key)
		if err == nil {
			err = syncFile(path)
		}
		failed = errors.Join(failed, err)
	}
	return errors.Join(failed, s.syncDir())
}

// syncFile has a file written to the disk; there is nothing to do for one that is gone.
func syncFile(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Lock makes this process the only one that uses a directory, which is made if need be,
// until it closes the file.
func Lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("state directory %s: another daemon uses it: %w", dir, err), f.Close())
	}
	return f, nil
}
