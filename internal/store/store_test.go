// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type record struct{ Name string }

func open(t *testing.T, dir string) *Store[record] {
	t.Helper()
	s, err := Open[record](dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordsSurviveReopening(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := open(t, dir)
	for key, r := range map[string]record{"c1_net1": {"one"}, "c1/eth@0": {"two"}, "gone": {"three"}} {
		if err := s.Put(key, r); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Delete("gone"); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]record{"c1_net1": {"one"}, "c1/eth@0": {"two"}}
	if diff := cmp.Diff(want, s.All()); diff != "" {
		t.Errorf("before reopening (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, open(t, dir).All()); diff != "" {
		t.Errorf("after reopening (-want +got):\n%s", diff)
	}
}

func TestCorruptRecordIsSetAside(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Put("good", record{"x"}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"bad.json": "{\"Name\": ", "empty.json": "", ".tmp-1": "cut off"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]record{"good": {"x"}}, open(t, dir).All()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	if diff := cmp.Diff([]string{"bad.json.corrupt", "empty.json.corrupt", "good.json"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestKeysThatCantBeFileNames(t *testing.T) {
	s := open(t, t.TempDir())
	for _, key := range []string{"", ".hidden", "..", strings.Repeat("x", 256)} {
		if err := s.Put(key, record{}); err == nil {
			t.Errorf("Put(%q) succeeded", key)
		}
	}
	if len(s.All()) != 0 {
		t.Errorf("records were kept: %v", s.All())
	}
}
