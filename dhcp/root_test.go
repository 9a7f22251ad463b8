// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	if got, err := InRoot(root, "/none/pod"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: got %s, error %v", got, err)
	}
	if got, err := InRoot("", "/none/pod"); err != nil || got != "/none/pod" {
		t.Errorf("own root: got %s, error %v", got, err)
	}
}
