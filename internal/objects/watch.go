// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Run follows the directory until ctx ends. It calls changed for each object
// that exists, then synced once, then changed for each object that comes,
// changes or goes. The calls come one at a time.
func (d *Dir) Run(ctx context.Context, changed func(kind, namespace, name string), synced func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch object directory: %w", err)
	}
	defer w.Close()
	if err := w.Add(d.path); err != nil {
		return fmt.Errorf("watch object directory %s: %w", d.path, err)
	}
	if _, err := d.scan(); err != nil {
		return err
	}
	tell := func(keys []Key) {
		for _, k := range keys {
			changed(k.Kind, k.Namespace, k.Name)
		}
	}
	tell(d.keys())
	d.dropStaleReports()
	synced()
	tick := time.NewTicker(rescanInterval)
	defer tick.Stop()
	logged := d.logBad(nil)
	for {
		rescan := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-w.Events:
			if name := filepath.Base(event.Name); event.Name != d.path && isObjectFile(name) {
				tell(d.refresh(name))
			}
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch object directory: %w", err)
			}
			rescan = true
		case <-tick.C:
			rescan = true
		}
		if !rescan {
			continue
		}
		keys, err := d.scan()
		if err != nil {
			return err
		}
		tell(keys)
		// A file that is still unreadable by now was not just being written.
		logged = d.logBad(logged)
	}
}

// rescanInterval is between looks at the whole directory: other hosts' changes
// of a network file system come without an event.
const rescanInterval = 2 * time.Second

func (d *Dir) keys() []Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := make([]Key, 0, len(d.index))
	for k := range d.index {
		keys = append(keys, k)
	}
	return keys
}
