// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// regulationRows is a dump of the rows of policies and QoS: what they are called,
// and their members. What else they have is the compiler's.
func (b *bench) regulationRows() string {
	synctest.Wait()
	var lines []string
	members := func(m *nbdb.Members) string { return strings.Join(slices.Sorted(m.All()), " ") }
	b.db.do(func() {
		r := b.db.rows
		for _, g := range r.PortGroups {
			lines = append(lines, fmt.Sprintf("%s = %s", g.ExternalIDs[nbdb.IDKey], members(g.Ports)))
		}
		for _, a := range r.AddressSets {
			lines = append(lines, fmt.Sprintf("%s = %s", a.ExternalIDs[nbdb.IDKey], members(a.Addresses)))
		}
		for _, a := range r.ACLs {
			lines = append(lines, "ACL "+a.ExternalIDs[nbdb.IDKey])
		}
		for _, q := range r.QoS {
			lines = append(lines, "QoS "+q.ExternalIDs[nbdb.IDKey])
		}
	})
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "dhcpServer") })
	slices.Sort(lines)
	out := ""
	for _, l := range lines {
		out += strings.TrimSpace(l) + "\n"
	}
	return out + b.m.reported()
}

// TestRegulations goes through the golden files: sections of objects to set, or
// to remove ("- Kind namespace/name"), and of what there is then. All that follows
// from one section is one transaction.
func TestRegulations(t *testing.T) {
	files, err := filepath.Glob("testdata/regulations/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files %v: %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(data), false)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				data = []byte(got)
			} else if d := cmp.Diff(string(data), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if d := cmp.Diff(string(data), replay(t, string(data), true)); d != "" {
				t.Errorf("with restarts (-want +got):\n%s", d)
			}
		})
	}
}

// replay makes the changes of a golden file and returns it with what there is
// after each; restarts has a controller start after each, which must not change
// anything.
func replay(t *testing.T, file string, restarts bool) string {
	parts := strings.Split(file, "\n== ")
	zone := ""
	if rest, ok := strings.CutPrefix(parts[0], "zone "); ok {
		zone, _, _ = strings.Cut(rest, "\n")
	}
	got := parts[0]
	startBenchInZone(t, zone, func(b *bench) {
		for _, part := range parts[1:] {
			head, changes, _ := strings.Cut(part, " ==\n")
			if head == "want" || part == "want ==" {
				continue
			}
			before := b.db.transactions
			b.change(changes)
			if before > 0 && b.db.transactions > before+1 {
				t.Errorf("%s: %d transactions", head, b.db.transactions-before)
			}
			got += "\n== " + strings.TrimSuffix(part, "\n") + "\n== want ==\n" + b.regulationRows()
			if restarts {
				rows, before := b.db.String(), b.db.transactions
				b.stop()
				b.start()
				if b.db.transactions != before {
					t.Errorf("%s: a restart has changed the rows (-before +after):\n%s", head, cmp.Diff(rows, b.db.String()))
				}
			}
		}
	})
	return got
}

// change sets and removes objects.
func (b *bench) change(changes string) {
	b.t.Helper()
	for doc := range strings.SplitSeq(changes, "\n---\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(doc), "- "); ok {
			kind, name, _ := strings.Cut(name, " ")
			b.m.remove(kind, name)
		} else {
			b.m.set(b.t, doc)
		}
	}
	synctest.Wait()
}

// Whatever has changed, in whatever order, the rows are those that a controller
// that starts now would make.
func TestRegulationsFollowEveryChange(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			startBenchInZone(t, "z1", func(b *bench) {
				for range 30 {
					for range 1 + random.IntN(4) {
						b.change(randomChange(random))
					}
					rows, before := b.db.String(), b.db.transactions
					b.stop()
					b.start()
					if b.db.transactions != before {
						t.Fatalf("a restart has changed the rows (-before +after):\n%s", cmp.Diff(rows, b.db.String()))
					}
				}
			}, randomNAD(random, "red"), randomNAD(random, "blue"))
		})
	}
}

func randomNAD(random *rand.Rand, name string) string {
	return fmt.Sprintf(`
kind: NetworkAttachmentDefinition
metadata: {namespace: a, name: %[1]s, labels: {team: %[2]s}}
spec: {config: '{"name":"%[1]s","type":"ovn-k8s-cni-overlay","netAttachDefName":"a/%[1]s","topology":"localnet","ipam":{"type":"dhcp"}}'}
`, name, oneOf(random, "s", "t"))
}

func oneOf(random *rand.Rand, choices ...string) string { return choices[random.IntN(len(choices))] }

// randomChange creates, changes or removes an object.
func randomChange(random *rand.Rand) string {
	pick := func(choices ...string) string { return oneOf(random, choices...) }
	namespace, name, team := pick("a", "b"), pick("p1", "p2"), pick("s", "t")
	kind := pick(kindPod, kindPod, kindPod, kindPolicy, kindPolicy, kindQoS, kindNamespace, kindNode, kindNAD)
	if random.IntN(5) == 0 {
		switch kind {
		case kindNamespace:
			return "- Namespace /" + namespace
		case kindNAD:
			return "- " + kindNAD + " a/" + pick("red", "blue")
		case kindNode:
			return "- Node /n2"
		}
		return "- " + kind + " " + namespace + "/" + name
	}
	selector := func() string { return pick("{}", "{matchLabels: {team: s}}", "{matchLabels: {team: t}}") }
	peer := func() string {
		return pick("podSelector: "+selector(), "namespaceSelector: "+selector(), "podSelector: "+selector()+", namespaceSelector: "+selector())
	}
	switch kind {
	case kindNAD:
		return randomNAD(random, pick("red", "blue"))
	case kindNamespace:
		return fmt.Sprintf("kind: Namespace\nmetadata: {name: %s, labels: {team: %s}}", namespace, team)
	case kindNode:
		return fmt.Sprintf("kind: Node\nmetadata: {name: %s, annotations: {k8s.ovn.org/zone-name: %s}}", pick("n1", "n2"), pick("z1", "z2"))
	case kindPolicy:
		return fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: %s, name: %s, annotations: {k8s.v1.cni.cncf.io/policy-for: "%s"}}
spec: {podSelector: %s, policyTypes: [%s], ingress: [{from: [{%s}]}], egress: [{to: [{%s}]}]}
`, namespace, name, pick("a/red", "a/blue", "a/red,a/blue"), selector(), pick("Ingress", "Egress", "Ingress, Egress", "Up"), peer(), peer())
	case kindQoS:
		return fmt.Sprintf(`
apiVersion: k8s.ovn.org/v1alpha1
kind: NetworkQoS
metadata: {namespace: %s, name: %s}
spec:
  networkSelectors: [{networkSelectionType: NetworkAttachmentDefinitions, networkAttachmentDefinitionSelector: {namespaceSelector: %s, networkSelector: %s}}]
  podSelector: %s
  priority: 1
  egress: [{dscp: %s, classifier: {to: [{%s}]}}]
`, namespace, name, selector(), selector(), selector(), pick("1", "64"), peer())
	}
	number := random.IntN(2) + 1
	return fmt.Sprintf(`
kind: Pod
metadata:
  namespace: %[1]s
  name: p%[2]d
  uid: uid-%[1]s-%[2]d
  labels: {team: %[3]s}
  annotations: {k8s.ovn.org/pod-networks: '{"a/%[4]s":{"mac_address":"0a:00:00:00:00:%[5]s","ip_addresses":["192.0.2.%[5]s/24"],"ipam_mode":"dhcp"}%[6]s}'}
spec: {nodeName: %[7]s}
status: {phase: %[8]s}
`, namespace, number, team, pick("red", "blue"), pick("10", "11", "12", "13", "14", "15"), pick("", "", "", "{"), pick("n1", "n2"), pick("Running", "Running", "Succeeded"))
}

// What is for other networks is not ours to judge: OVN-Kubernetes has NetworkQoS
// of its own, with the same conditions.
func TestRegulationsOfOthers(t *testing.T) {
	startBench(t, func(b *bench) {
		b.m.set(t, `
apiVersion: k8s.ovn.org/v1alpha1
kind: NetworkQoS
metadata: {namespace: ns, name: default-network}
spec: {priority: 1, egress: [{dscp: 46}]}
---
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: ns, name: theirs, annotations: {k8s.v1.cni.cncf.io/policy-for: theirs}}
spec: {podSelector: {}, ingress: [{ports: [{port: http}]}]}
---
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: ns, name: ours, annotations: {k8s.v1.cni.cncf.io/policy-for: net}}
spec: {podSelector: {}}
`)
		synctest.Wait()
		for name, want := range map[string]bool{"default-network": false, "theirs": false, "ours": true} {
			b.m.mu.Lock()
			got := b.m.reportedOn[object{kindQoS, "ns", name}] || b.m.reportedOn[object{kindPolicy, "ns", name}]
			b.m.mu.Unlock()
			if got != want {
				t.Errorf("%s was reported on: %v, want %v", name, got, want)
			}
		}
	}, netNAD, strings.NewReplacer("name: net", "name: theirs", "ns/net", "ns/theirs", "ovn-k8s-cni-overlay", "macvlan").Replace(netNAD))
}
