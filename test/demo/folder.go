// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// folder is the demo's folder: the lab's own below it, and beside that what
// people and "demo down" use.
type folder string

func (f folder) run() string { return filepath.Join(string(f), "run") }
func (f folder) pid() string { return filepath.Join(string(f), "pid") }
func (f folder) env() string { return filepath.Join(string(f), "env") }
func (f folder) log() string { return filepath.Join(string(f), "log") }

// process returns the pid of the demo that is running, 0 when none is. The pid
// file has the process's start time too, since a pid can be another's by now.
func (f folder) process() (int, error) {
	data, err := os.ReadFile(f.pid())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) != 2 {
		return 0, fmt.Errorf("%s does not hold a pid and a start time: %q", f.pid(), data)
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.pid(), err)
	}
	if started, err := startTime(pid); err != nil || started != fields[1] {
		return 0, nil
	}
	return pid, nil
}

func (f folder) writePID(pid int) error {
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	return os.WriteFile(f.pid(), fmt.Appendf(nil, "%d %s\n", pid, started), 0o644)
}

// startTime is when a process was started, field 22 of proc_pid_stat(5).
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command's name, field 2, is in parentheses and may hold anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", unix.ESRCH
	}
	return fields[19], nil
}

// onlyChild is the pid of a process's only child.
func onlyChild(pid int) (int, error) {
	data, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	var children []string
	for _, path := range data {
		list, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		children = append(children, strings.Fields(string(list))...)
	}
	if len(children) != 1 {
		return 0, fmt.Errorf("process %d has %d children", pid, len(children))
	}
	return strconv.Atoi(children[0])
}
