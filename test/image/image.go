// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package image makes file systems for emulated machines: initial RAM disks, which
// their kernels unpack.
package image

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// An Image is a file system, as a cpio archive in the format "newc", see cpio(5).
// Names in it are absolute; what has been added under a name stays. The folders
// that a name is in are made.
type Image struct {
	archive bytes.Buffer
	inodes  int
	has     map[string]bool
}

// File types, as in inode(7).
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// New is an image with nothing in it.
func New() *Image { return &Image{has: map[string]bool{}} }

// add adds an entry below its folders, once.
func (m *Image) add(name string, mode int, data []byte) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if m.has[name] {
		return
	}
	if folder := path.Dir(name); folder != "." {
		m.add(folder, typeDir|0o755, nil)
	}
	m.has[name] = true
	m.inodes++
	m.header(name, mode, len(data))
	m.archive.Write(data)
	m.pad()
}

func (m *Image) header(name string, mode, size int) {
	// ino mode uid gid nlink mtime filesize, device and rdevice, namesize, check
	fmt.Fprintf(&m.archive, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		m.inodes, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0)
	m.archive.WriteString(name + "\x00")
	m.pad()
}

// pad fills up to a multiple of four bytes.
func (m *Image) pad() { m.archive.Write(make([]byte, -m.archive.Len()&3)) }

// Dir adds a folder.
func (m *Image) Dir(name string) { m.add(name, typeDir|0o755, nil) }

// Link adds a symbolic link.
func (m *Image) Link(name, target string) { m.add(name, typeLink|0o777, []byte(target)) }

// Add adds a file, which can be executed.
func (m *Image) Add(name string, data []byte) { m.add(name, typeFile|0o755, data) }

// File adds what is in a file of this machine.
func (m *Image) File(name, source string) error {
	data, err := os.ReadFile(source)
	if err == nil {
		m.Add(name, data)
	}
	return err
}

// Same adds files of this machine where they are here.
func (m *Image) Same(names ...string) error {
	for _, name := range names {
		if err := m.File(name, name); err != nil {
			return err
		}
	}
	return nil
}

// Folder adds the files that are in a folder of this machine.
func (m *Image) Folder(name, source string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := m.File(path.Join(name, e.Name()), filepath.Join(source, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Programs adds programs of this machine, where they are here, with the libraries
// that they need.
func (m *Image) Programs(names ...string) error {
	for _, name := range names {
		if err := m.program(name); err != nil {
			return err
		}
	}
	return nil
}

// absolute finds the paths in the output of ldd(1).
var absolute = regexp.MustCompile(`(?m)(?:^\s*|=> )(/\S+)`)

func (m *Image) program(name string) error {
	file, err := exec.LookPath(name)
	if err != nil {
		return err
	}
	needs := []string{file}
	out, err := exec.Command("ldd", file).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		return fmt.Errorf("libraries of %s: %w: %s", file, err, out)
	}
	for _, library := range absolute.FindAllStringSubmatch(string(out), -1) {
		needs = append(needs, library[1])
	}
	return m.Same(needs...)
}

// Write ends the archive and writes it to a file.
func (m *Image) Write(file string) error {
	m.header("TRAILER!!!", 0, 0)
	return os.WriteFile(file, m.archive.Bytes(), 0o644)
}
