// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// place is where the lease of an attachment is in use, and how.
type place struct {
	Netns  string `json:"netns"`
	IfName string `json:"ifname"`
	// Priority is the metric of the lease's routes.
	Priority int `json:"priority,omitempty"`
	// Via is the host's device by which the network can be reached without the
	// interface; empty if there is none.
	Via string `json:"via,omitempty"`
}

// places is a directory with one file for each attachment. They are wanted so seldom
// that they are not in memory.
type places string

const placeSuffix = ".json"

func openPlaces(dir string) (places, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("directory of attachments: %w", err)
	}
	return places(dir), nil
}

func (p places) path(key string) string {
	return filepath.Join(string(p), url.PathEscape(key)+placeSuffix)
}

// put returns when the place is on disk.
func (p places) put(key string, at place) error {
	data, err := json.Marshal(at)
	if err == nil {
		err = renameio.WriteFile(p.path(key), data, 0o600, renameio.WithTempDir(string(p)))
	}
	if err != nil {
		return fmt.Errorf("writing attachment %s: %w", key, err)
	}
	return nil
}

func (p places) get(key string) (place, error) {
	var at place
	data, err := os.ReadFile(p.path(key))
	if err == nil {
		err = json.Unmarshal(data, &at)
	}
	if err != nil {
		return place{}, fmt.Errorf("reading attachment %s: %w", key, err)
	}
	return at, nil
}

// remove forgets a place; one that is not known is no error.
func (p places) remove(key string) error {
	if err := os.Remove(p.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing attachment %s: %w", key, err)
	}
	return nil
}

// retain removes all files but those of these keys: leases that were given back later,
// or have expired, and writes that were cut off.
func (p places) retain(keys []string) error {
	files, err := os.ReadDir(string(p))
	if err != nil {
		return fmt.Errorf("directory of attachments: %w", err)
	}
	for _, f := range files {
		key, err := url.PathUnescape(strings.TrimSuffix(f.Name(), placeSuffix))
		if err == nil && slices.Contains(keys, key) {
			continue
		}
		if err := os.Remove(filepath.Join(string(p), f.Name())); err != nil {
			return fmt.Errorf("directory of attachments: %w", err)
		}
	}
	return nil
}
