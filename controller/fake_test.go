// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// memory is a Source of objects that the test sets.
type memory struct {
	mu       sync.Mutex
	objects  map[object]*unstructured.Unstructured
	problems map[object]map[string]string
	reports  int
	// reportedOn are the objects that were reported on, also that nothing is wrong.
	reportedOn map[object]bool
	changed    func(kind, namespace, name string)
}

func newMemory() *memory {
	return &memory{objects: map[object]*unstructured.Unstructured{}, problems: map[object]map[string]string{}, reportedOn: map[object]bool{}}
}

func (m *memory) Run(ctx context.Context, changed func(kind, namespace, name string), synced func()) error {
	m.mu.Lock()
	m.changed = changed
	for o := range m.objects {
		changed(o.kind, o.namespace, o.name)
	}
	m.mu.Unlock()
	synced()
	<-ctx.Done()
	return ctx.Err()
}

// set creates or replaces the objects of a YAML stream.
func (m *memory) set(t testing.TB, stream string) {
	t.Helper()
	for doc := range strings.SplitSeq(stream, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if u.Object == nil {
			continue
		}
		m.put(object{u.GetKind(), u.GetNamespace(), u.GetName()}, u)
	}
}

// annotate sets one annotation of a pod.
func (m *memory) annotate(namespace, name, annotation, value string) {
	o := object{kindPod, namespace, name}
	m.mu.Lock()
	u := m.objects[o].DeepCopy()
	m.mu.Unlock()
	annotations := u.GetAnnotations()
	annotations[annotation] = value
	u.SetAnnotations(annotations)
	m.put(o, u)
}

func (m *memory) remove(kind, name string) {
	m.put(named(kind, name), nil)
}

func (m *memory) put(o object, u *unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[o] = u; u == nil {
		delete(m.objects, o)
	}
	if m.changed != nil {
		m.changed(o.kind, o.namespace, o.name)
	}
}

func (m *memory) Object(kind, namespace, name string) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[object{kind, namespace, name}]
}

func (m *memory) Pod(namespace, name string) *corev1.Pod {
	return typed[corev1.Pod](m.Object(kindPod, namespace, name))
}

func (m *memory) Node(name string) *corev1.Node {
	return typed[corev1.Node](m.Object(kindNode, "", name))
}

func typed[T any](u *unstructured.Unstructured) *T {
	if u == nil {
		return nil
	}
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		panic(err)
	}
	return out
}

func (m *memory) Report(_ context.Context, kind, namespace, name string, problems map[string]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports++
	o := object{kind, namespace, name}
	m.reportedOn[o] = true
	if m.problems[o] = maps.Clone(problems); len(problems) == 0 {
		delete(m.problems, o)
	}
	return nil
}

// reported is a dump of all problems that objects have at the moment.
func (m *memory) reported() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for o, problems := range m.problems {
		for reason, message := range problems {
			lines = append(lines, fmt.Sprintf("%s: %s: %s\n", o, reason, message))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// rowStore is a database that holds rows, and refuses what it is told to.
type rowStore struct {
	mu           sync.Mutex
	rows         nbdb.Rows
	members      map[string]*nbdb.Members // by the row's name
	missing      map[string][]string      // owners of port groups, by the name of a port that is not there yet
	refuse       func(c nbdb.Change) bool
	made         func() // a transaction; called with the lock
	transactions int
	refused      int
	changed      func(owner string)
}

func (s *rowStore) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, r := range s.rows.Switches {
		keys = append(keys, r.Owner)
	}
	for _, r := range s.rows.Ports {
		keys = append(keys, r.Owner)
	}
	for _, r := range s.rows.PortGroups {
		keys = append(keys, r.Owner)
	}
	for _, r := range s.rows.AddressSets {
		keys = append(keys, r.Owner)
	}
	for _, r := range s.rows.QoS {
		keys = append(keys, r.Owner)
	}
	return keys
}

func (s *rowStore) Rows(key string, want nbdb.Rows) nbdb.Rows {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := map[string]bool{}
	for _, w := range want.Ports {
		on[w.Switch] = true
	}
	for _, w := range want.ACLs {
		on[w.On] = true
	}
	for _, w := range want.QoS {
		on[w.Switch] = true
	}
	for _, w := range want.RouterPorts {
		on[w.Router] = true
	}
	identity := func(ids map[string]string) string { return ids[nbdb.IDKey] + ids[nbdb.OwnIDKey] }
	return nbdb.Rows{
		Switches:       pick(s.rows.Switches, want.Switches, key, on, func(r nbdb.Switch) (string, string) { return r.Owner, r.Name }),
		Ports:          pick(s.rows.Ports, want.Ports, key, nil, func(r nbdb.Port) (string, string) { return r.Owner, r.Name }),
		PortGroups:     pick(s.rows.PortGroups, want.PortGroups, key, on, func(r nbdb.PortGroup) (string, string) { return r.Owner, r.Name }),
		AddressSets:    pick(s.rows.AddressSets, want.AddressSets, key, nil, func(r nbdb.AddressSet) (string, string) { return r.Owner, r.Name }),
		ACLs:           pick(s.rows.ACLs, want.ACLs, key, nil, func(r nbdb.ACL) (string, string) { return r.Owner, identity(r.ExternalIDs) }),
		QoS:            pick(s.rows.QoS, want.QoS, key, nil, func(r nbdb.QoS) (string, string) { return r.Owner, identity(r.ExternalIDs) }),
		Routers:        pick(s.rows.Routers, want.Routers, key, on, func(r nbdb.Router) (string, string) { return r.Owner, r.Name }),
		RouterPorts:    pick(s.rows.RouterPorts, want.RouterPorts, key, nil, func(r nbdb.RouterPort) (string, string) { return r.Owner, r.Name }),
		RouterPolicies: pick(s.rows.RouterPolicies, want.RouterPolicies, key, nil, func(r nbdb.RouterPolicy) (string, string) { return r.Owner, identity(r.ExternalIDs) }),
	}
}

// pick are the rows that a group owns, those with the names of wanted ones, and
// those that others are on.
func pick[T any](rows, want []T, key string, on map[string]bool, of func(T) (owner, name string)) []T {
	var out []T
	for _, r := range rows {
		owner, name := of(r)
		if owner == key || on[name] || slices.ContainsFunc(want, func(w T) bool { _, wanted := of(w); return wanted == name }) {
			out = append(out, r)
		}
	}
	return out
}

func (s *rowStore) Apply(_ context.Context, changes ...nbdb.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil && slices.ContainsFunc(changes, s.refuse) {
		s.refused++
		return fmt.Errorf("%w: as the test wants", nbdb.ErrRefused)
	}
	if !s.matters(changes) {
		return nil
	}
	s.transactions++
	if s.made != nil {
		defer s.made()
	}
	for _, c := range changes {
		s.rows.Switches = edited(s.rows.Switches, c.Switches, func(r nbdb.Switch) string { return r.UUID })
		for _, e := range c.Ports {
			if e.Have != nil && e.Want != nil {
				e.Want.Up = e.Have.Up // is not written
			}
		}
		s.rows.Ports = edited(s.rows.Ports, c.Ports, func(r nbdb.Port) string { return r.UUID })
		for i, e := range c.PortGroups {
			if e.Want != nil {
				added, removed := e.Members()
				added = slices.DeleteFunc(slices.Clone(added), func(port string) bool { return slices.Contains(s.missing[port], c.Key) })
				c.PortGroups[i].Want.Ports = s.changeMembers(e.Want.Name, added, removed)
			} else {
				delete(s.members, e.Have.Name)
			}
		}
		for i, e := range c.AddressSets {
			if e.Want != nil {
				added, removed := e.Members()
				c.AddressSets[i].Want.Addresses = s.changeMembers(e.Want.Name, added, removed)
			} else {
				delete(s.members, e.Have.Name)
			}
		}
		s.rows.PortGroups = edited(s.rows.PortGroups, c.PortGroups, func(r nbdb.PortGroup) string { return r.UUID })
		s.rows.AddressSets = edited(s.rows.AddressSets, c.AddressSets, func(r nbdb.AddressSet) string { return r.UUID })
		s.rows.ACLs = edited(s.rows.ACLs, c.ACLs, func(r nbdb.ACL) string { return r.UUID })
		s.rows.QoS = edited(s.rows.QoS, c.QoS, func(r nbdb.QoS) string { return r.UUID })
		s.rows.Routers = edited(s.rows.Routers, c.Routers, func(r nbdb.Router) string { return r.UUID })
		s.rows.RouterPorts = edited(s.rows.RouterPorts, c.RouterPorts, func(r nbdb.RouterPort) string { return r.UUID })
		s.rows.RouterPolicies = edited(s.rows.RouterPolicies, c.RouterPolicies, func(r nbdb.RouterPolicy) string { return r.UUID })
		s.changed(c.Key)
	}
	return nil
}

// matters notes which ports that groups are to have are missing, and tells of
// those that come. It returns whether there is more to do than that.
func (s *rowStore) matters(changes []nbdb.Change) (some bool) {
	there := map[string]bool{}
	for _, p := range s.rows.Ports {
		there[p.Name] = true
	}
	for _, c := range changes {
		for _, e := range c.Ports {
			if e.Want == nil {
				continue
			}
			there[e.Want.Name] = true
			for _, owner := range s.missing[e.Want.Name] {
				s.changed(owner)
			}
			delete(s.missing, e.Want.Name)
		}
	}
	for _, c := range changes {
		some = some || len(c.PortGroups) == 0 || len(c.ACLs) > 0
		for _, e := range c.PortGroups {
			added, removed := e.Members()
			some = some || e.Have == nil || e.Want == nil || len(removed) > 0 || len(added) == 0
			for _, port := range added {
				if there[port] {
					some = true
					continue
				}
				if s.missing == nil {
					s.missing = map[string][]string{}
				}
				s.missing[port] = append(s.missing[port], c.Key)
			}
		}
	}
	return some
}

// changeMembers changes the members of a row of this name.
func (s *rowStore) changeMembers(name string, added, removed []string) *nbdb.Members {
	if s.members == nil {
		s.members = map[string]*nbdb.Members{}
	}
	if s.members[name] == nil {
		s.members[name] = nbdb.NewMembers()
	}
	for _, e := range added {
		s.members[name].Add(e)
	}
	for _, e := range removed {
		s.members[name].Remove(e)
	}
	return s.members[name]
}

func edited[T any](rows []T, edits []nbdb.Edit[T], id func(T) string) []T {
	for _, e := range edits {
		if e.Have != nil {
			rows = slices.DeleteFunc(slices.Clone(rows), func(r T) bool { return id(r) == id(*e.Have) })
		}
		if e.Want != nil {
			rows = append(rows, *e.Want)
		}
	}
	return rows
}

// do changes the database behind the loop's back, or looks at it.
func (s *rowStore) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *rowStore) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows.String()
}

// setUp is what ovn-northd does when a port is bound or released.
func (s *rowStore) setUp(t testing.TB, port string, up bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.rows.Ports {
		if s.rows.Ports[i].Name == port {
			s.rows.Ports[i].Up = up
			s.changed(s.rows.Ports[i].Owner)
			return
		}
	}
	t.Fatalf("no port %s", port)
}

// sections splits a golden file at its "== name ==" lines.
func sections(t testing.TB, data []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	name := ""
	for line := range bytes.Lines(data) {
		if text := strings.TrimSpace(string(line)); strings.HasPrefix(text, "== ") && strings.HasSuffix(text, " ==") {
			name = strings.Trim(text, "= ")
			continue
		}
		out[name] += string(line)
	}
	return out
}

// netNAD is a NAD of network "net".
const netNAD = `
kind: NetworkAttachmentDefinition
metadata: {namespace: ns, name: net}
spec:
  config: '{"name":"net","type":"ovn-k8s-cni-overlay","netAttachDefName":"ns/net","topology":"localnet","ipam":{"type":"dhcp"}}'
`

// podYAML is a pod of namespace ns with one attachment of netNAD; address may
// be empty.
func podYAML(name, mac, address string) string {
	addresses := "[]"
	if address != "" {
		addresses = `["` + address + `"]`
	}
	return fmt.Sprintf(`
kind: Pod
metadata:
  namespace: ns
  name: %[1]s
  uid: uid-%[1]s
  annotations:
    k8s.ovn.org/pod-networks: '{"ns/net":{"mac_address":"%[2]s","ip_addresses":%[3]s,"ipam_mode":"dhcp"}}'
spec: {nodeName: n1}
status: {phase: Running}
`, name, mac, addresses)
}
