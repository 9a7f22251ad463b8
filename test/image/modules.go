// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Modules adds kernel modules from a folder, and those that they depend on, to
// /modules. /modules/order has their files in the order in which they are to be
// loaded.
func (m *Image) Modules(folder string, names ...string) error {
	files, err := moduleFiles(folder)
	if err != nil {
		return err
	}
	var order []string
	done := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if done[name] {
			return nil
		}
		done[name] = true
		file, ok := files[name]
		if !ok {
			return fmt.Errorf("%s has no module %s", folder, name)
		}
		needs, err := dependencies(file)
		if err != nil {
			return fmt.Errorf("module %s: %w", file, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		order = append(order, filepath.Base(file))
		return m.File("/modules/"+filepath.Base(file), file)
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return err
		}
	}
	m.Add("/modules/order", []byte(strings.Join(order, "\n")))
	return nil
}

// moduleFiles maps the names of modules to files. A name has "_" also where the
// file's has "-".
func moduleFiles(folder string) (map[string]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		name := strings.ReplaceAll(strings.TrimSuffix(e.Name(), ".ko"), "-", "_")
		files[name] = filepath.Join(folder, e.Name())
	}
	return files, nil
}

// dependencies returns which modules a module says it needs.
func dependencies(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	var needs []string
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			for _, n := range strings.Split(list, ",") {
				needs = append(needs, strings.ReplaceAll(n, "-", "_"))
			}
		}
	}
	return needs, nil
}
