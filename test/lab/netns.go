// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// AddNetns makes a network namespace, as a container runtime does for a pod,
// with its loopback device up, and returns its path, which is good in every
// node. Another lab can have one of the same name.
func (l *Lab) AddNetns(name string) (path string, err error) {
	full := l.netnsName(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := output(exec.Command("ip", "netns", "add", full)); err != nil {
		return "", err
	}
	l.pods[full] = true
	if _, err := output(exec.Command("ip", "-n", full, "link", "set", "lo", "up")); err != nil {
		return "", err
	}
	return l.NetnsPath(name), nil
}

// NetnsPath returns the path of the network namespace of this name.
func (l *Lab) NetnsPath(name string) string { return filepath.Join(netnsDir, l.netnsName(name)) }

// DelNetns removes a network namespace. Processes in it are not ended; the
// namespace is gone when they are.
func (l *Lab) DelNetns(name string) error {
	full := l.netnsName(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := deleteNetns(full); err != nil {
		return err
	}
	delete(l.pods, full)
	return nil
}

// InNetns is a command that runs in a network namespace of AddNetns. It ends
// with ctx or with the lab.
func (l *Lab) InNetns(ctx context.Context, netns, name string, args ...string) *exec.Cmd {
	return nsenter(ctx, []string{"--net=" + l.NetnsPath(netns)}, name, args)
}

// netnsName keeps the names of several labs apart.
func (l *Lab) netnsName(name string) string {
	return strings.TrimLeft(filepath.Base(l.Dir), ".") + "-" + name
}

func deleteNetns(full string) error {
	if _, err := output(exec.Command("ip", "netns", "del", full)); err != nil {
		return fmt.Errorf("delete network namespace: %w", err)
	}
	return nil
}
