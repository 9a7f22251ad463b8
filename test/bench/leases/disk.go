// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

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
	var t times
	for i := range diskSamples {
		began := time.Now()
		if err := putRecord(dir, i); err != nil {
			return err
		}
		t = append(t, time.Since(began))
	}
	b.table.note = fmt.Sprintf("until a record is on this disk it takes %s", t)
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
