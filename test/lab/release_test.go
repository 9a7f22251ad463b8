// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestOVN25(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	_, err := OVN25()
	if err == nil || !strings.Contains(err.Error(), "run test/ovn25.sh") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("not fetched: got %v, want one line that names the script", err)
	}

	// It asks for the folder that the script prints.
	name := regexp.MustCompile(`ovn25\.03-[0-9a-f]{12}`).FindString(err.Error())
	folder := filepath.Join(cache, "ovn-dhcp-ipam", name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := OVN25(); got != folder || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, folder)
	}
	if got, err := output(exec.Command("../ovn25.sh")); got != folder || err != nil {
		t.Errorf("the script says %q, %v, want %q", got, err, folder)
	}

	t.Chdir("/")
	if _, err := OVN25(); err == nil || !strings.Contains(err.Error(), "no checkout") {
		t.Errorf("outside of a checkout: got %v", err)
	}
}
