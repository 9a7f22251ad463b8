// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

var update = flag.Bool("update", false, "write the golden files anew")

// testNetwork is what the tests compile for.
var testNetwork = Network{Name: "tenant-net", IDPrefix: "k8s.ovn.org/"}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// inputs are the objects of the golden files, by name.
func inputs(t testing.TB) map[string]*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files %v: %v", files, err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".yaml")] = object(t, string(data))
	}
	return out
}

// compile is what an object becomes, and what is said about it.
func compile(u *unstructured.Unstructured) (Compiled, string) {
	var b strings.Builder
	tell := func(pods *Selector, err error) {
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
		}
		if pods != nil {
			fmt.Fprintf(&b, "pods: %s\n", pods.Key())
		}
	}
	if u.GetKind() == "NetworkQoS" {
		q, err := ParseQoS(u)
		if err != nil {
			tell(nil, err)
			return Compiled{}, b.String()
		}
		tell(q.Pods, nil)
		return q.Compile(testNetwork), b.String()
	}
	p, err := ParsePolicy(u)
	tell(p.Pods, err)
	fmt.Fprintf(&b, "networks: %s\n", strings.Join(p.NADs, " "))
	for _, d := range directions {
		if p.Isolates(d) {
			fmt.Fprintf(&b, "isolates: %s\n", d)
		}
	}
	return p.Compile(testNetwork), b.String()
}

// rows are those of an object together with the sets that they refer to.
func (c Compiled) rows() nbdb.Rows {
	out := c.Rows
	for _, s := range c.Sets {
		out.AddressSets = append(out.AddressSets, s.Row)
	}
	return out
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".rows")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

func TestCompile(t *testing.T) {
	for name, u := range inputs(t) {
		t.Run(name, func(t *testing.T) {
			c, told := compile(u)
			golden(t, name, told+c.rows().String())
		})
	}
}

func TestNetworkRows(t *testing.T) {
	for name, rows := range networkRows() {
		t.Run(name, func(t *testing.T) { golden(t, name, rows.String()) })
	}
}

// networkRows are the rows of a network that belong to no object.
func networkRows() map[string]nbdb.Rows {
	return map[string]nbdb.Rows{
		"default-deny-ingress": testNetwork.DefaultDeny("ns", Ingress),
		"default-deny-egress":  testNetwork.DefaultDeny("ns", Egress),
		"guard-dhcp-server":    {ACLs: testNetwork.DHCPServerGuard(podnet.SwitchName(testNetwork.Name), "physical")},
		"guard-open-port":      testNetwork.OpenPortGuard(),
	}
}

// With another prefix no row has the key by which OVN-Kubernetes knows the rows
// of its networks.
func TestIDPrefix(t *testing.T) {
	n := Network{Name: "net", IDPrefix: "ovn-dhcp-ipam/"}
	for _, rows := range []nbdb.Rows{n.DefaultDeny("ns", Ingress), n.OpenPortGuard()} {
		for _, g := range rows.PortGroups {
			if _, ok := g.ExternalIDs[nbdb.NetworkKey]; ok || g.ExternalIDs["ovn-dhcp-ipam/network"] != "net" {
				t.Errorf("external_ids %v", g.ExternalIDs)
			}
		}
	}
}

// The examples are good ones.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../deploy/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(string(data), "\n---\n") {
			u := object(t, text)
			switch u.GetKind() {
			case "MultiNetworkPolicy":
				_, err = ParsePolicy(u)
			case "NetworkQoS":
				_, err = ParseQoS(u)
			default:
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			compiled++
		}
	}
	if compiled == 0 {
		t.Errorf("no examples in %v", files)
	}
}
