// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/controller/policy"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

var update = flag.Bool("update", false, "write the golden files anew")

// load makes inputs of the objects of a source.
func load(m *memory, pluginType, zone string) *inputs {
	in := newInputs(pluginType, zone, "")
	for o, u := range m.objects {
		switch o.kind {
		case kindPod:
			in.setPod(o.namespace+"/"+o.name, parsePod(m.Pod(o.namespace, o.name)))
		case kindNAD:
			in.setNAD(o.namespace+"/"+o.name, parseNAD(u, pluginType))
		case kindNode:
			in.setNode(o.name, parseNode(m.Node(o.name)))
		}
	}
	in.rule()
	in.enrolAll(in.all())
	return in
}

// dump is what is desired of all keys.
func dump(in *inputs) string {
	var rows nbdb.Rows
	var lines []string
	for _, p := range in.nadProblems() {
		lines = append(lines, fmt.Sprintf("%s: %s: %s\n", p.object, p.reason, p.message))
	}
	for name, p := range in.pods {
		if in.placeOf(p) != here {
			continue
		}
		for _, p := range p.problems(podObject(name)) {
			lines = append(lines, fmt.Sprintf("%s: %s: %s\n", p.object, p.reason, p.message))
		}
	}
	for k := range in.all() {
		d := in.desired(k)
		for i := range d.rows.Switches {
			d.rows.Switches[i].Owner = k.String()
		}
		for i := range d.rows.Ports {
			d.rows.Ports[i].Owner = k.String()
		}
		rows.Switches = append(rows.Switches, d.rows.Switches...)
		rows.Ports = append(rows.Ports, d.rows.Ports...)
		rows.PortGroups = append(rows.PortGroups, d.rows.PortGroups...)
		rows.AddressSets = append(rows.AddressSets, d.rows.AddressSets...)
		rows.ACLs = append(rows.ACLs, d.rows.ACLs...)
		rows.QoS = append(rows.QoS, d.rows.QoS...)
		rows.Routers = append(rows.Routers, d.rows.Routers...)
		rows.RouterPorts = append(rows.RouterPorts, d.rows.RouterPorts...)
		rows.RouterPolicies = append(rows.RouterPolicies, d.rows.RouterPolicies...)
		if d.keep {
			lines = append(lines, fmt.Sprintf("%s: stays as it is\n", k))
		}
		for _, p := range d.problems {
			lines = append(lines, fmt.Sprintf("%s: %s: %s\n", p.object, p.reason, p.message))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "") + rows.String()
}

func TestDesired(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files %v: %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := sections(t, data)
			pluginType := DefaultPluginType
			if p := strings.TrimSpace(s["plugin"]); p != "" {
				pluginType = p
			}
			m := newMemory()
			m.set(t, s["objects"])
			got := dump(load(m, pluginType, strings.TrimSpace(s["zone"])))
			if *update {
				head, _, _ := strings.Cut(string(data), "== want ==\n")
				if err := os.WriteFile(file, []byte(head+"== want ==\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if d := cmp.Diff(s["want"], got); d != "" {
				t.Errorf("desired (-want +got):\n%s", d)
			}
		})
	}
}

// The order in which objects come has no influence.
func TestDesiredInAnyOrder(t *testing.T) {
	data, err := os.ReadFile("testdata/mac.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := sections(t, data)
	for range 20 { // map order
		m := newMemory()
		m.set(t, s["objects"])
		if d := cmp.Diff(s["want"], dump(load(m, DefaultPluginType, ""))); d != "" {
			t.Fatalf("desired (-want +got):\n%s", d)
		}
	}
}

func TestKey(t *testing.T) {
	for _, k := range []key{
		networkKey("net-1"),
		portKey("ns/n", "ns", "p"),
		portKey("ns/n/12", "other", "p.q"),
		denyKey("a/b", "ns", policy.Egress),
		setKey("net", "a123"),
		regulationKey(object{kindPolicy, "ns", "p"}, "net"),
		regulationKey(object{kindQoS, "ns", "q"}, "a/b"),
	} {
		if got, ok := parseKey(k.String()); !ok || got != k {
			t.Errorf("parseKey(%q) = %+v, %v", k, got, ok)
		}
	}
	for _, owner := range []string{"", "network/", "port/", "port/a/b/c", "port/a/b/0/c/d", "port/a/b/01/c/d", "port/a/b/x/c/d", "port/a/b/1/2/c/d", "port//b/c/d", "set/x", "deny/net/ns", "policy//ns/name", "fence"} {
		if got, ok := parseKey(owner); ok {
			t.Errorf("parseKey(%q) = %+v, want none", owner, got)
		}
	}
}

// Whatever a pod's annotation is, rows keep to the contract and other pods are
// not affected.
func FuzzAnnotation(f *testing.F) {
	f.Add(`{"ns/net":{"mac_address":"0a:00:00:00:00:01","ip_addresses":["192.0.2.7/24"],"ipam_mode":"dhcp"}}`)
	f.Add(`{"ns/net":{"mac_address":"0a:00:00:00:00:02","ip_addresses":null,"ipam_mode":"dhcp"},"ns/net/1":{"mac_address":"0a:00:00:00:00:02","ipam_mode":"dhcp"}}`)
	f.Add(`{"ns/net":null,"x":1,"ns/net/-1":{}}`)
	f.Add(`[]`)
	m := newMemory()
	m.set(f, netNAD)
	m.set(f, podYAML("steady", "0a:00:00:00:00:01", "192.0.2.1/24"))
	f.Fuzz(func(t *testing.T, annotation string) {
		in := load(m, DefaultPluginType, "")
		p := m.Pod("ns", "steady")
		p.Name, p.UID = "zz", "uid-zz"
		p.Annotations = maps.Clone(p.Annotations)
		p.Annotations["k8s.ovn.org/pod-networks"] = annotation
		in.setPod("ns/zz", parsePod(p))
		names := map[string]bool{}
		for k := range in.all() {
			for _, port := range in.desired(k).rows.Ports {
				if names[port.Name] {
					t.Errorf("two ports %s", port.Name)
				}
				names[port.Name] = true
				if k.isPort() && (len(port.Addresses) != 1 || !slices.Equal(port.Addresses, port.PortSecurity) || !macFirst(port.Addresses[0])) {
					t.Errorf("port %s has addresses %q, port security %q", port.Name, port.Addresses, port.PortSecurity)
				}
			}
		}
		if !names["ns.net_ns_steady"] {
			t.Error("the port of another pod is gone")
		}
	})
}

func macFirst(s string) bool {
	mac, _, _ := strings.Cut(s, " ")
	return len(mac) == 17 && strings.Count(mac, ":") == 5
}
