// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// A release is a version of OVN and the Open vSwitch that goes with it. A lab
// takes all programs and schemas from one.
type release struct {
	bin     string // where the programs are, "" for PATH
	share   string // where the packages' data is
	install string // what installs it
}

// newRelease is the release in a folder that test/ovn25.sh has filled, or the
// system's if that is "".
func newRelease(folder string) (release, error) {
	if folder == "" {
		return release{share: "/usr/share", install: "test/packages.sh"}, nil
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return release{}, err
	}
	return release{
		bin:     filepath.Join(folder, "bin"),
		share:   filepath.Join(folder, "root/usr/share"),
		install: "test/ovn25.sh",
	}, nil
}

// releasePrograms are what a lab runs of a release.
var releasePrograms = [...]string{
	"ovn-controller", "ovn-nbctl", "ovn-northd", "ovn-sbctl",
	"ovs-appctl", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool",
}

// program is the name or path to start one of the programs by.
func (r release) program(name string) string { return filepath.Join(r.bin, name) }

// command is exec.CommandContext for one of the programs.
func (r release) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, r.program(name), args...)
}

// env is what a process needs in its environment to find the programs.
func (r release) env() []string {
	if r.bin == "" {
		return nil
	}
	return []string{"PATH=" + r.bin + ":" + os.Getenv("PATH")}
}

func (r release) schemaNB() string  { return filepath.Join(r.share, "ovn/ovn-nb.ovsschema") }
func (r release) schemaSB() string  { return filepath.Join(r.share, "ovn/ovn-sb.ovsschema") }
func (r release) schemaOVS() string { return filepath.Join(r.share, "openvswitch/vswitch.ovsschema") }

// missing returns which programs and schemas are not there.
func (r release) missing() []string {
	var missing []string
	for _, name := range releasePrograms {
		if _, err := exec.LookPath(r.program(name)); err != nil {
			missing = append(missing, r.program(name))
		}
	}
	for _, schema := range []string{r.schemaNB(), r.schemaSB(), r.schemaOVS()} {
		if _, err := os.Stat(schema); err != nil {
			missing = append(missing, schema)
		}
	}
	return missing
}

// ovn25Script is the script, in the checkout, that fetches OVN 25.03.
const ovn25Script = "test/ovn25.sh"

// OVN25 returns the folder of OVN 25.03 for Options.OVN. It must have been
// filled by test/ovn25.sh of the checkout that has the working directory, since
// there is no network inside a lab; the error says so if it was not.
func OVN25() (string, error) { return cached(ovn25Script, "ovn25.03") }

// cached is the folder of the user's cache that a script of the checkout fills.
func cached(script, name string) (string, error) {
	text, err := readAbove(script)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	// What another version of the script has made may be something else.
	sum := sha256.Sum256(text)
	folder := filepath.Join(cache, "ovn-dhcp-ipam", fmt.Sprintf("%s-%x", name, sum[:6]))
	if _, err := os.Stat(folder); err != nil {
		return "", fmt.Errorf("%s has not been fetched, run %s: %w", name, script, err)
	}
	return folder, nil
}

// readAbove reads a file whose name is relative to the working directory or to
// one of those above it.
func readAbove(name string) ([]byte, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case err == nil:
			return data, nil
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		case dir == "/":
			return nil, fmt.Errorf("the working directory is in no checkout: no %s", name)
		}
		dir = filepath.Dir(dir)
	}
}
