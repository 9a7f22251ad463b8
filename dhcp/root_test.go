// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestInRoot(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"run/netns", "var", "proc/7/ns"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"var/run": "/run", "proc/7/ns/net": "net:[4026531840]", "up": "../../.."} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/run/netns/pod":        "/run/netns/pod",
		"/var/run/netns/pod":    "/run/netns/pod",
		"/proc/7/ns/net":        "/proc/7/ns/net",
		"/up/run/netns/pod":     "/run/netns/pod",
		"/run/../../../var/pod": "/var/pod",
		"/pod":                  "/pod",
	} {
		if got, err := InRoot(root, path); err != nil || got != filepath.Join(root, want) {
			t.Errorf("%s: got %s, error %v", path, got, err)
		}
	}
	for _, path := range []string{"", "/", "/run/..", "/run/.", "run/netns/pod"} {
		if got, err := InRoot(root, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: got %s, error %v", path, got, err)
		}
	}
	if got, err := InRoot(filepath.Join(root, "none"), "/run/pod"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no root: got %s, error %v", got, err)
	}
	if got, err := InRoot(root, "/none/pod"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: got %s, error %v", got, err)
	}
	if got, err := InRoot("", "/none/pod"); err != nil || got != "/none/pod" {
		t.Errorf("own root: got %s, error %v", got, err)
	}
}

// TestInRootMeanwhile: that somebody renames something, somewhere on the machine, is no
// reason not to find what is there.
func TestInRootMeanwhile(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "run/netns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../run", filepath.Join(root, "var/run")); err != nil {
		t.Fatal(err)
	}
	one, other := filepath.Join(elsewhere, "one"), filepath.Join(elsewhere, "other")
	if err := os.WriteFile(one, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var renaming sync.WaitGroup
	defer renaming.Wait()
	defer close(done)
	renaming.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := errors.Join(os.Rename(one, other), os.Rename(other, one)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 5000 {
		if got, err := InRoot(root, "/var/run/netns/pod"); err != nil || got != filepath.Join(root, "run/netns/pod") {
			t.Fatalf("got %s, error %v", got, err)
		}
	}
}
