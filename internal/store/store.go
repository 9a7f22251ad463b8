// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package store keeps records on disk, one small JSON file each. A record is
// on disk before it is in memory, and a crash at any moment leaves either the
// old record or the new one.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
)

const (
	suffix        = ".json"
	suffixCorrupt = ".corrupt"
	prefixTemp    = "."
	maxFileName   = 255
)

// Store holds the records of one directory. It is the directory's only user
// and is safe for concurrent use.
type Store[T any] struct {
	dir string

	mu      sync.Mutex
	records map[string]T
}

// Open reads the records of a directory, which it makes if need be. A file
// that can't be read as a record is renamed to *.corrupt and logged; it stops
// no other.
func Open[T any](dir string, log *slog.Logger) (*Store[T], error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("record directory: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("record directory: %w", err)
	}
	s := &Store[T]{dir: dir, records: map[string]T{}}
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

func read[T any](path, name string) (key string, record T, err error) {
	if key, err = url.PathUnescape(name); err != nil {
		return "", record, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", record, err
	}
	return key, record, json.Unmarshal(data, &record)
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
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = renameio.WriteFile(path, append(data, '\n'), 0o600, renameio.WithTempDir(s.dir), renameio.WithStaticPermissions(0o600))
	if err == nil {
		err = s.sync()
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	s.records[key] = record
	return nil
}

// sync has the directory's entries written to the disk.
func (s *Store[T]) sync() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get returns a record; ok is false when there is none.
func (s *Store[T]) Get(key string) (record T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, ok = s.records[key]
	return record, ok
}

// All returns the records by key.
func (s *Store[T]) All() map[string]T {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]T, len(s.records))
	for key, record := range s.records {
		all[key] = record
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record %s: %w", key, err)
	}
	delete(s.records, key)
	if err := s.sync(); err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	return nil
}
