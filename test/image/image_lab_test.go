// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestImage has busybox unpack an archive, and runs what is in it.
func TestImage(t *testing.T) {
	m := New()
	m.Add("/etc/odd", []byte("12345"))
	m.Add("/etc/odd", []byte("not this"))
	m.Add("/etc/empty", nil)
	m.Dir("/var/lib")
	m.Link("/odd", "etc/odd")
	if err := m.Programs("busybox", "ip"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	archive, root := filepath.Join(dir, "archive"), filepath.Join(dir, "root")
	if err := m.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	unpack := exec.Command("busybox", "cpio", "-i", "-F", archive)
	unpack.Dir = root
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", unpack, err, out)
	}
	for name, want := range map[string]string{"odd": "12345", "etc/odd": "12345", "etc/empty": ""} {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "var/lib")); err != nil || !info.IsDir() {
		t.Errorf("var/lib: %v", err)
	}
	for _, name := range []string{"busybox", "ip"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		run := exec.Command("chroot", root, path, "--help")
		if out, err := run.CombinedOutput(); len(out) == 0 {
			t.Errorf("%s: %v", run, err)
		}
	}
}
