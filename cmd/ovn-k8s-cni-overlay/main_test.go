// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeviceInfo has network configurations name files that are for them, and others.
func TestDeviceInfo(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "devinfo")
	const text = `{"type":"pci","pci":{"pci-address":"0000:3b:10.2","representor-device":"rep0"}}`
	for name, data := range map[string]string{"devinfo/cni/a.json": text, "devinfo/cni/broken.json": "x", "secret.json": text} {
		path := filepath.Join(parent, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../secret.json", filepath.Join(dir, "cni/link.json")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		file string
		want string // the representor
		err  string
	}{
		{file: ""},
		{file: dir + "/cni/a.json", want: "rep0"},
		{file: dir + "/cni/missing.json"},
		{file: dir + "/cni/broken.json", err: "invalid character"},
		{file: parent + "/secret.json", err: "must be below"},
		{file: dir + "/cni/../../secret.json", err: "must be below"},
		{file: "cni/a.json", err: "must be below"},
		{file: dir + "/cni/link.json", err: "escapes"},
	} {
		config, err := json.Marshal(map[string]any{"runtimeConfig": map[string]any{"CNIDeviceInfoFile": test.file}})
		if err != nil {
			t.Fatal(err)
		}
		info, err := deviceInfo(dir, config)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: got error %v, want %q", test.file, err, test.err)
		}
		got := ""
		if info.PCI != nil {
			got = info.PCI.Representor
		}
		if got != test.want {
			t.Errorf("%q: representor %q, want %q", test.file, got, test.want)
		}
	}
	if _, err := deviceInfo(filepath.Join(parent, "none"), []byte(`{"runtimeConfig":{"CNIDeviceInfoFile":"`+parent+`/none/a.json"}}`)); err != nil {
		t.Errorf("without the folder: %v", err)
	}
}
