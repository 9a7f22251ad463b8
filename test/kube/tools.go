// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tools returns the folders that test/tools/build.sh has filled, in the form of
// PATH. It builds nothing, since a lab has no network: what is missing is an
// error of one line.
func Tools(ctx context.Context) (string, error) {
	root, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(root, "test/tools/build.sh"), "--print-path").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("the programs of the control plane are not built, run test/tools/build.sh (or make test): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// moduleDir is the root of the module that the working directory is in.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// find returns the path of a program in folders, which have the form of PATH.
func find(folders, program string) (string, error) {
	for _, dir := range filepath.SplitList(folders) {
		path := filepath.Join(dir, program)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s in %s", program, folders)
}
