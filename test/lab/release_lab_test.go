// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A testRelease is a release to run a test on.
type testRelease struct {
	name string
	ovn  string // Options.OVN
	root string // where its programs are
	path string // a PATH that finds them
}

// testReleases are the system's release and OVN 25.03.
func testReleases(t *testing.T) []testRelease {
	t.Helper()
	ovn25, err := OVN25()
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	return []testRelease{
		{"system", "", "/usr/", path},
		{"25.03", ovn25, filepath.Join(ovn25, "root/usr") + "/", filepath.Join(ovn25, "bin") + ":" + path},
	}
}

// TestRelease looks at all that a lab runs, and at what its users find.
func TestRelease(t *testing.T) {
	for _, r := range testReleases(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			l := New(t, Options{OVN: r.ovn})
			t.Logf("started in %v", time.Since(began).Round(time.Millisecond))
			n := l.Nodes[0]

			for _, d := range l.daemons {
				exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", d.process.Pid))
				if err != nil || d != l.DHCP.daemon && !strings.HasPrefix(exe, r.root) {
					t.Errorf("%s runs %q, %v, want something in %s", d.name, exe, err, r.root)
				}
			}

			const tools = "{ ovs-vsctl --version; ovn-nbctl --version; } | sed -n '/^ov/s/.* //p'"
			const daemons = "{ ovs-appctl version; ovn-appctl -t ovn-controller version; } | sed -n '/^ov/s/.* //p'"
			want := shell(t, exec.Command("sh", "-c", tools), "PATH="+r.path)
			if r.ovn != "" && (!strings.HasPrefix(want, "3.5.") || !strings.Contains(want, "\n25.03.")) {
				t.Errorf("%s has the versions %q", r.ovn, want)
			}
			for where, got := range map[string]string{
				"a shell":     shell(t, exec.Command("sh", "-c", tools), l.Env()...),
				"the node":    shell(t, n.Command(t.Context(), "sh", "-c", tools)),
				"its daemons": shell(t, n.Command(t.Context(), "sh", "-c", daemons)),
			} {
				if got != want {
					t.Errorf("%s: versions %q, want %q", where, got, want)
				}
			}

			for tool, db := range map[string]*database{"ovn-nbctl": l.northbound[0], "ovn-sbctl": l.southbound, "ovs-vsctl": n.ovs.db} {
				has := shell(t, exec.Command("ovsdb-tool", "db-version", db.path(".db")))
				knows := shell(t, exec.Command("sh", "-c", tool+" --version | sed -n 's/^DB Schema //p'"), "PATH="+r.path)
				if has != knows {
					t.Errorf("%s has schema %q, %s knows %q", db.name, has, tool, knows)
				}
			}
		})
	}
}

// shell runs a command with more in its environment.
func shell(t *testing.T, cmd *exec.Cmd, env ...string) string {
	t.Helper()
	cmd.Env = append(cmd.Environ(), env...)
	out, err := output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
