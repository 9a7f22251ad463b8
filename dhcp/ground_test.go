// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExists: a namespace is gone if it can be seen that it is, or if it was one of before
// the machine's last start; not if this process doesn't see where it would be.
func TestExists(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "run/netns"), 0o755); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(root, "run/netns/there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ground := kernel{boot: "now", root: root}
	place, err := ground.identify("/run/netns/there", nil)
	if err != nil {
		t.Fatal(err)
	}
	k := &Keeper{ground: ground}
	for name, test := range map[string]struct {
		netns, place string
		want         bool
	}{
		"there":                      {"/run/netns/there", place, true},
		"another one":                {"/run/netns/there", place + "0", false},
		"gone":                       {"/run/netns/gone", place, false},
		"its process is gone":        {"/proc/7/ns/net", place, false},
		"directory not seen":         {"/var/run/netns/there", place, true},
		"another boot":               {"/run/netns/there", strings.Replace(place, "now", "then", 1), false},
		"another boot, not seen":     {"/var/run/netns/there", strings.Replace(place, "now", "then", 1), false},
		"the process's own":          {"", "now", true},
		"the process's own, by then": {"", "then", false},
	} {
		r := record{Client: identity{Netns: test.netns, Place: test.place}}
		if got := k.exists(r); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if _, err := ground.open(identity{Netns: test.netns, Place: test.place, IfName: "none"}, leasedIP); name == "directory not seen" && errors.Is(err, errGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := KeeperConfig{Dir: t.TempDir(), Root: filepath.Join(root, "none"), Log: slog.New(slog.DiscardHandler)}
	if _, err := NewKeeper(cfg); err == nil || !strings.Contains(err.Error(), cfg.Root) {
		t.Errorf("a Keeper without its root directory: %v", err)
	}
}
