// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package imports holds the rules of who may import whom.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/"

// allowed says what a package and those below it may import of this module; the
// longest matching path counts, and the package itself is always allowed. The
// commands may import everything, and are not listed.
var allowed = map[string][]string{
	"cniserver/watcher":       {"dhcp", "podnet"},
	"cniserver":               {"cniserver/wire", "cniserver/watcher", "dhcp", "vfio", "podnet", "models/ovs", "internal/ovsdb", "internal/store"},
	"cniserver/wire":          {},
	"controller":              {"controller/policy", "nbdb", "sbdb", "podnet"},
	"controller/policy":       {"nbdb", "podnet"},
	"nbdb":                    {"models/nb", "internal/ovsdb"},
	"sbdb":                    {"models/sb", "internal/ovsdb"},
	"dhcp":                    {"internal/store"},
	"dhcp/cnirpc":             {"dhcp"},
	"vfio":                    {"internal/store"},
	"podnet":                  {},
	"models":                  {},
	"internal":                {},
	"test":                    {"test/image", "test/lab", "test/site", "test/kube"},
	"test/bench":              {"test/bench/session", "test/bench/times", "test/lab", "test/site", "test/kube", "dhcp", "podnet"}, // it acts as a guest
	"test/vfio":               {"test/vfio/card"},
	"cmd/ovn-k8s-cni-overlay": {"cniserver/wire"},
}

// forbidden modules, by the start of a package's path: what a package must not
// depend on even by way of others.
var forbidden = map[string][]string{
	"cmd/ovn-k8s-cni-overlay": {"k8s.io/", "github.com/ovn-org/libovsdb", "github.com/vishvananda/netlink"},
	"dhcp":                    {"k8s.io/"},
	"cniserver/wire":          {"k8s.io/", "github.com/ovn-org/libovsdb"},
	"cniserver":               {module + "models/nb", module + "models/sb", module + "nbdb", module + "sbdb"},
}

type pkg struct {
	ImportPath    string
	Imports, Deps []string
}

func TestImports(t *testing.T) {
	packages := list(t)
	seen := map[string]bool{}
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module)
		rule, ok := ruleOf(name)
		if !ok {
			if !strings.HasPrefix(name, "cmd/") {
				t.Errorf("%s: no import rule for it", name)
			}
			continue
		}
		seen[rule] = true
		for _, path := range p.Imports {
			imported, ours := strings.CutPrefix(path, module)
			if ours && imported != name && !slices.Contains(allowed[rule], imported) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, prefix := range forbidden[name] {
			for _, dep := range p.Deps {
				if strings.HasPrefix(dep, prefix) {
					t.Errorf("%s depends on %s", name, dep)
				}
			}
		}
	}
	for _, name := range []string{"cniserver", "controller", "nbdb", "dhcp", "podnet", "models", "internal"} {
		if !seen[name] {
			t.Errorf("no package was held against the rule of %s", name)
		}
	}
}

// ruleOf is the longest path with a rule that a package is in.
func ruleOf(name string) (string, bool) {
	for path := name; path != ""; {
		if _, ok := allowed[path]; ok {
			return path, true
		}
		i := strings.LastIndex(path, "/")
		if i < 0 {
			break
		}
		path = path[:i]
	}
	return "", false
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
