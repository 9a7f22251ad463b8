// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// TestVersions puts one record again and again: its file stays small, and a process that
// is ended at any byte of the last write leaves the version before it, or the last one.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	s, file := open(t, dir), filepath.Join(dir, "key.json")
	want := record{}
	for i := range 2000 {
		want = record{fmt.Sprintf("version %d", i)}
		if err := s.Put("key", want); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Size() > maxFile {
			t.Fatalf("after %d versions: %v, error %v", i+1, info.Size(), err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(last) + 2 {
		if err := os.WriteFile(file, content[:len(content)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := "version 1999"
		if cut > 1 { // more than the line's end
			want = "version 1998"
		}
		s := open(t, dir)
		if got, ok := s.Get("key"); !ok || got.Name != want {
			t.Fatalf("%d bytes cut off: got %v, want %s", cut, got, want)
		}
		if err := s.Put("key", record{"next"}); err != nil {
			t.Fatal(err)
		}
		if got, ok := open(t, dir).Get("key"); !ok || got.Name != "next" {
			t.Fatalf("%d bytes cut off, and then another version: got %v", cut, got)
		}
	}
}

// TestZeros has a version that the disk was given the room for, but not the data.
func TestZeros(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "key.json")
	for _, tail := range []string{"\x00\x00\x00", "{\"Na\x00\x00"} {
		if err := os.WriteFile(file, []byte("{\"Name\":\"good\"}\n"+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		if got, ok := s.Get("key"); !ok || got.Name != "good" {
			t.Errorf("tail %q: got %v, %v", tail, got, ok)
		}
		if err := s.Put("key", record{"next"}); err != nil {
			t.Fatal(err)
		}
		if got, _ := open(t, dir).Get("key"); got.Name != "next" {
			t.Errorf("tail %q, and then another version: got %v", tail, got)
		}
	}
}

// TestFailedWrite: what a write has left behind when it failed is no part of the next
// version.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	s, file := open(t, dir), filepath.Join(dir, "key.json")
	if err := s.Put("key", record{"old"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := s.Put("key", record{"failed"}); err == nil {
		t.Error("a version was appended to nothing")
	}
	if got, _ := s.Get("key"); got.Name != "old" {
		t.Errorf("in memory: %v", got)
	}
	if err := s.Put("key", record{"new"}); err != nil {
		t.Fatal(err)
	}
	if got, ok := open(t, dir).Get("key"); !ok || got.Name != "new" {
		t.Errorf("on disk: %v", got)
	}
}

// TestWritersTogether has many write the same records: what is in memory at last is what is
// on disk.
func TestWritersTogether(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 50 {
				key := fmt.Sprint("key", i%5)
				if err := s.Put(key, record{fmt.Sprintf("%d by %d", i, w)}); err != nil {
					t.Error(err)
				}
				if i%10 == w {
					if err := s.Delete(key); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	writers.Wait()
	if diff := cmp.Diff(s.All(), open(t, dir).All()); diff != "" {
		t.Errorf("records (-memory +disk):\n%s", diff)
	}
}

// TestDeferred has a record survive the process before it is synced, and sees to it that
// all is synced in time.
func TestDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, err := OpenDeferred[record](dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		put := func(key string) {
			t.Helper()
			if err := s.Put(key, record{key}); err != nil {
				t.Fatal(err)
			}
		}
		unsynced := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.unsynced)
		}
		put("before")
		if diff := cmp.Diff(s.All(), open(t, dir).All()); diff != "" {
			t.Errorf("records (-memory +disk):\n%s", diff)
		}
		ctx, end := context.WithCancel(t.Context())
		var syncing sync.WaitGroup
		syncing.Go(func() { s.SyncLater(ctx, func(err error) { t.Error(err) }) })
		time.Sleep(syncDelay)
		synctest.Wait()
		if n := unsynced(); n != 0 {
			t.Errorf("%d records are not synced", n)
		}
		put("gone")
		if err := s.Delete("gone"); err != nil {
			t.Fatal(err)
		}
		put("last")
		if n := unsynced(); n != 2 {
			t.Errorf("%d records are to be synced, want 2", n)
		}
		end()
		syncing.Wait()
		if n := unsynced(); n != 0 {
			t.Errorf("%d records are not synced at the end", n)
		}
	})
}

// TestFirstVersion has a process end at any byte of a record's first write.
func TestFirstVersion(t *testing.T) {
	dir := t.TempDir()
	reopen := func() *Store[record] {
		t.Helper()
		s, err := OpenDeferred[record](dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := reopen().Put("key", record{"first"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "key.json")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(content) + 1 {
		if err := os.WriteFile(file, content[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		s := reopen()
		got, ok := s.Get("key")
		if whole := n >= len(content)-1; ok != whole || whole && got.Name != "first" { // but for the line's end
			t.Errorf("%d of %d bytes: got %v, %v", n, len(content), got, ok)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if n == 0 && (err != nil || len(files) != 0) {
			t.Errorf("without content: files %v, error %v", files, err)
		}
		if err := s.Put("key", record{"next"}); err != nil {
			t.Fatal(err)
		}
		if got, _ := reopen().Get("key"); got.Name != "next" {
			t.Errorf("%d of %d bytes, and then another version: got %v", n, len(content), got)
		}
	}
}

// TestFailedFirstWrite: a first version that can't be written leaves no record behind, and
// what is left of a file is in nobody's way.
func TestFailedFirstWrite(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenDeferred[record](dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "key.json")
	if err := os.Mkdir(file, 0o700); err != nil { // nothing can be written there
		t.Fatal(err)
	}
	if err := s.Put("key", record{"failed"}); err == nil {
		t.Error("a directory was written to")
	}
	if _, ok := s.Get("key"); ok {
		t.Error("a record that was not written is in memory")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("left over by a write that has failed, and longer than what comes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Put("key", record{"new"}); err != nil {
		t.Fatal(err)
	}
	if got, _ := open(t, dir).Get("key"); got.Name != "new" {
		t.Errorf("on disk: %v", got)
	}
}

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	lock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("locked twice: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err = Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
}
