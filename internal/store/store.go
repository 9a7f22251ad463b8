// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package store keeps records on disk, one small JSON file each. A record is
// on disk before it is in memory, and a crash at any moment leaves either the
// old record or the new one.
//
// A file holds the record's last few versions, one after the other, and the last
// complete one counts: to append one is a single write to a file that is there,
// where a new file in the old one's place would cost several writes to the disk,
// and a scan for a free inode. What was cut off in the middle of it is no version.
// A file that has grown to maxFile is written anew.
//
// There are two ends that a record can have to outlive. The end of the process,
// by kill -9 too, takes nothing of what a write has left in the kernel. The end of
// the kernel, when the power fails, takes what is not on the disk by then, and only
// fsync sees to that, which takes a disk milliseconds. Open gives a Store that waits
// for it; OpenDeferred one that doesn't.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const (
	suffix        = ".json"
	suffixCorrupt = ".corrupt"
	prefixTemp    = "."
	maxFileName   = 255
	// maxFile is how much a file grows by versions of its record, in bytes.
	maxFile = 16 << 10
)

// Store holds the records of one directory. It is the directory's only user
// and is safe for concurrent use: writes of different records don't wait for
// each other.
type Store[T any] struct {
	dir      string
	deferred bool
	// changed has room for one sign that something is unsynced.
	changed chan struct{}

	mu      sync.Mutex
	records map[string]stored[T]
	writing map[string]chan struct{} // closed when the write has ended
	// unsynced are the keys whose files are to be synced; of a Store that is deferred.
	unsynced map[string]struct{}
}

// stored is a record, and how much there is of its file; at least maxFile if nothing is
// to be appended to it.
type stored[T any] struct {
	record T
	size   int
}

// Open reads the records of a directory, which it makes if need be. A file
// that can't be read as a record is renamed to *.corrupt and logged; it stops
// no other.
func Open[T any](dir string, log *slog.Logger) (*Store[T], error) {
	return load[T](dir, log, false)
}

// OpenDeferred is Open, of a Store whose Put and Delete return when what they did
// outlives the process. It outlives a power failure about a second later, by SyncLater;
// before that, one may leave the record as it was, or as a file that is set aside, or, when
// it is empty, removed: there is nothing in it, be it that its first write was cut off.
func OpenDeferred[T any](dir string, log *slog.Logger) (*Store[T], error) {
	return load[T](dir, log, true)
}

func load[T any](dir string, log *slog.Logger, deferred bool) (*Store[T], error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("record directory: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("record directory: %w", err)
	}
	s := &Store[T]{
		dir: dir, deferred: deferred, changed: make(chan struct{}, 1),
		records: map[string]stored[T]{}, writing: map[string]chan struct{}{}, unsynced: map[string]struct{}{},
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if strings.HasPrefix(f.Name(), prefixTemp) {
			// The remains of a write that was cut off.
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("record directory: %w", err)
			}
			continue
		}
		name, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok {
			continue
		}
		key, record, err := read[T](path, name)
		if err == io.EOF && deferred {
			log.Warn("record without content is removed: its last write was cut off", "file", path)
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("record directory: %w", err)
			}
			continue
		}
		if err != nil {
			log.Error("record can't be read and is set aside", "file", path+suffixCorrupt, "err", err)
			if err := os.Rename(path, path+suffixCorrupt); err != nil {
				return nil, fmt.Errorf("set record aside: %w", err)
			}
			continue
		}
		s.records[key] = record
	}
	return s, nil
}

func read[T any](path, name string) (key string, out stored[T], err error) {
	if key, err = url.PathUnescape(name); err != nil {
		return "", out, err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", out, err
	}
	defer f.Close()
	out.record, out.size, err = lastVersion[T](f)
	return key, out, err
}

// lastVersion returns the last complete version in a file, and the file's size, or
// maxFile if it ends with one that was cut off.
func lastVersion[T any](f io.Reader) (last T, size int, err error) {
	versions := json.NewDecoder(f)
	for n := 0; ; n++ {
		var version T
		var syntax *json.SyntaxError
		switch err := versions.Decode(&version); {
		case err == nil:
			last, size = version, int(versions.InputOffset())
		case n > 0 && err == io.EOF:
			return last, size, nil
		case n > 0 && (errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &syntax)):
			// After a power failure there can be zeros where it was to be.
			return last, maxFile, nil
		default:
			return last, 0, err
		}
	}
}

func (s *Store[T]) path(key string) (string, error) {
	name := url.PathEscape(key) + suffix
	if key == "" || len(name) > maxFileName || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("record key %q can't be a file name", key)
	}
	return filepath.Join(s.dir, name), nil
}

// Put writes a record and returns when it is on disk.
func (s *Store[T]) Put(key string, record T) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	data = append(data, '\n')
	old, there := s.begin(key)
	defer s.end(key)
	size := len(data)
	switch {
	case !there && s.deferred:
		err = s.create(path, data)
	case there && old.size+size <= maxFile:
		size += old.size
		err = s.append(path, data)
	default:
		err = s.replace(path, data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if there {
			old.size = maxFile // there may be a part of a version behind it
			s.records[key] = old
		}
		return fmt.Errorf("record %s: %w", key, err)
	}
	s.records[key] = stored[T]{record, size}
	s.unsync(key)
	return nil
}

// Get returns a record; ok is false when there is none.
func (s *Store[T]) Get(key string) (record T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[key]
	return r.record, ok
}

// All returns the records by key.
func (s *Store[T]) All() map[string]T {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]T, len(s.records))
	for key, r := range s.records {
		all[key] = r.record
	}
	return all
}

// Delete removes a record and returns when it is gone from the disk. A record
// that doesn't exist is no error.
func (s *Store[T]) Delete(key string) error {
	path, err := s.path(key)
	if err != nil {
		return err
	}
	s.begin(key)
	defer s.end(key)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record %s: %w", key, err)
	}
	s.mu.Lock()
	delete(s.records, key)
	s.unsync(key)
	s.mu.Unlock()
	if s.deferred {
		return nil
	}
	if err := s.syncDir(); err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	return nil
}

// begin waits until nobody else writes the record of a key, and returns it.
func (s *Store[T]) begin(key string) (r stored[T], there bool) {
	for {
		s.mu.Lock()
		other := s.writing[key]
		if other == nil {
			s.writing[key] = make(chan struct{})
			r, there = s.records[key]
			s.mu.Unlock()
			return r, there
		}
		s.mu.Unlock()
		<-other
	}
}

// end lets others write it.
func (s *Store[T]) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.writing[key])
	delete(s.writing, key)
}
