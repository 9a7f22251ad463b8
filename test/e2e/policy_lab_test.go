// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/renameio/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

func (w *world) objectFile(kind, namespace, name string) string {
	return filepath.Join(w.Objects, strings.ToLower(kind)+"."+namespace+"."+name+".yaml")
}

// apply creates or replaces the objects of a YAML stream.
func (w *world) apply(stream string) {
	w.t.Helper()
	for doc := range strings.SplitSeq(stream, "\n---\n") {
		u := &unstructured.Unstructured{}
		w.must(yaml.Unmarshal([]byte(doc), &u.Object))
		w.must(renameio.WriteFile(w.objectFile(u.GetKind(), u.GetNamespace(), u.GetName()), []byte(doc), 0o644, renameio.WithTempDir(w.Objects)))
	}
}

func (w *world) unapply(kind, namespace, name string) {
	w.t.Helper()
	w.must(os.Remove(w.objectFile(kind, namespace, name)))
}

// policy is a MultiNetworkPolicy of namespace default for the network.
func policy(name, spec string) string {
	return fmt.Sprintf("{apiVersion: k8s.cni.cncf.io/v1beta1, kind: MultiNetworkPolicy, metadata: {namespace: default, name: %s, "+
		"annotations: {k8s.v1.cni.cncf.io/policy-for: lan}}, spec: %s}", name, spec)
}

// member is a pod on the network.
type member struct {
	*station
	pod *corev1.Pod
}

// join adds a pod to the network.
func (w *world) join(namespace, name string, node int, labels map[string]string) *member {
	w.t.Helper()
	pod := w.Pod(namespace, name, node, "uid-"+name)
	pod.Labels = labels
	w.must(w.PutPod(pod))
	netns := w.netns("sandbox-" + namespace + "-" + name)
	mac, addr := address(w.t, w.cni(node, w.Attach("ADD", pod, w.lan, netns)))
	w.pinned("default.lan_"+namespace+"_"+name, mac.String()+" "+addr.Addr().String())
	return &member{w.station(netns, "net1", mac, addr.Addr()), pod}
}

// pinned awaits what addresses a port has.
func (w *world) pinned(port, addresses string) {
	w.t.Helper()
	w.eventually(10*time.Second, func() string {
		if got := w.nbctl("lsp-get-addresses", port); got != addresses {
			return fmt.Sprintf("addresses of %s: %q", port, got)
		}
		return ""
	})
}

// edit changes a pod.
func (w *world) edit(m *member, change func(pod *corev1.Pod)) {
	w.t.Helper()
	pod, err := w.GetPod(m.pod.Namespace, m.pod.Name)
	w.must(err)
	change(pod)
	w.must(w.PutPod(pod))
}

func (w *world) relabel(m *member, labels map[string]string) {
	w.t.Helper()
	w.edit(m, func(pod *corev1.Pod) { pod.Labels = labels })
}

// check awaits that traffic passes, or does not, as "from>to service" has it.
func (w *world) check(step string, stations map[string]*station, want map[string]bool) {
	w.t.Helper()
	for what, allowed := range want {
		ends, service, _ := strings.Cut(what, " ")
		from, to, _ := strings.Cut(ends, ">")
		w.eventually(20*time.Second, func() string {
			if why := w.probe(stations[from], stations[to], service, allowed); why != "" {
				return fmt.Sprintf("%s: %s: %s", step, what, why)
			}
			return ""
		})
	}
}

// TestPolicies goes through what the tests of Kubernetes' NetworkPolicy have that
// applies to a secondary network, on two nodes, with a virtual machine among the
// pods.
func TestPolicies(t *testing.T) {
	t.Run("system's OVN", func(t *testing.T) {
		newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}}).policies()
	})
	t.Run("OVN 25.03 with VLAN", func(t *testing.T) {
		ovn, err := lab.OVN25()
		if err != nil {
			t.Fatal(err)
		}
		newWorld(t, site.Options{Lab: lab.Options{Nodes: 2, OVN: ovn, VLAN: 100}}).policies()
	})
}

func (w *world) policies() {
	web := w.join("default", "web", 0, map[string]string{"app": "web"})
	client := w.join("default", "client", 1, map[string]string{"app": "client"})
	other := w.join("other", "client", 1, map[string]string{"app": "client"})
	v := w.newVM("vm1", 1)
	guest := w.guest(v)
	w.bound(guest, v.addr, "bound", 1)
	stations := map[string]*station{
		"web": web.station, "client": client.station, "other": other.station, "vm": w.station(guest.Netns, "eth0", v.mac, v.addr.Addr()),
	}

	const toWeb, vms = "podSelector: {matchLabels: {app: web}}", "podSelector: {matchLabels: {kubevirt.io: virt-launcher}}"
	from := func(peers string) func() {
		return func() { w.apply(policy("p", "{"+toWeb+", ingress: [{from: ["+peers+"]}]}")) }
	}
	set := func(name, spec string) func() { return func() { w.apply(policy(name, spec)) } }
	remove := func(names ...string) func() {
		return func() {
			for _, name := range names {
				w.unapply("MultiNetworkPolicy", "default", name)
			}
		}
	}
	const cidrs = "{ipBlock: {cidr: 10.1.192.0/24, except: [%s/32]}}"
	for _, step := range []struct {
		name   string
		change func()
		want   map[string]bool
	}{
		{"without policies", func() {}, map[string]bool{
			"client>web tcp/80": true, "other>web udp/53": true, "vm>web tcp/80": true, "web>vm tcp/80": true, "web>client udp/53": true}},
		{"deny all ingress", set("p", "{"+toWeb+", policyTypes: [Ingress]}"), map[string]bool{
			"client>web tcp/80": false, "client>web udp/53": false, "other>web tcp/80": false, "vm>web udp/53": false,
			"web>client tcp/80": true, "web>vm tcp/80": true, "client>other tcp/80": true}},
		{"from a namespace", from("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}"), map[string]bool{
			"other>web tcp/80": true, "other>web udp/53": true, "client>web tcp/80": false, "vm>web tcp/80": false}},
		{"from pods", from("{podSelector: {matchLabels: {app: client}}}"), map[string]bool{
			"client>web tcp/80": true, "client>web udp/53": true, "other>web tcp/80": false, "vm>web tcp/80": false}},
		{"from pods of a namespace", from("{podSelector: {matchLabels: {app: client}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}"), map[string]bool{
			"other>web tcp/80": true, "client>web tcp/80": false}},
		{"from virtual machines", from("{" + vms + "}"), map[string]bool{
			"vm>web tcp/80": true, "vm>web udp/53": true, "client>web tcp/80": false}},
		{"from a prefix with an exception", from(fmt.Sprintf(cidrs, other.addr)), map[string]bool{
			"client>web tcp/80": true, "vm>web udp/53": true, "other>web tcp/80": false, "other>web udp/53": false}},
		{"ports and ranges", set("p", "{"+toWeb+", ingress: [{ports: [{port: 80}, {protocol: UDP, port: 5000, endPort: 5010}]}]}"), map[string]bool{
			"client>web tcp/80": true, "client>web tcp/81": false, "client>web udp/80": false,
			"client>web udp/5000": true, "client>web udp/5010": true, "client>web udp/5011": false, "client>web tcp/5000": false}},
		{"a second policy for another port", set("q", "{"+toWeb+", ingress: [{ports: [{port: 81}]}]}"), map[string]bool{
			"client>web tcp/80": true, "client>web tcp/81": true, "client>web tcp/82": false}},
		{"the first is gone", remove("p"), map[string]bool{
			"client>web tcp/80": false, "client>web tcp/81": true}},
		{"the second is updated", set("q", "{"+toWeb+", ingress: [{ports: [{port: 82}]}]}"), map[string]bool{
			"client>web tcp/82": true, "client>web tcp/81": false}},
		{"all are gone", remove("q"), map[string]bool{
			"client>web tcp/80": true, "other>web udp/53": true, "vm>web tcp/80": true}},
		{"deny all egress", set("p", "{"+toWeb+", policyTypes: [Egress]}"), map[string]bool{
			"web>client tcp/80": false, "web>other udp/53": false, "web>vm tcp/80": false, "client>web tcp/80": true, "vm>web tcp/80": true}},
		{"egress to pods of a namespace, one port", set("p", "{"+toWeb+", policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: client}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}}], ports: [{port: 80}]}]}"), map[string]bool{
			"web>other tcp/80": true, "web>other tcp/81": false, "web>client tcp/80": false}},
		{"egress to a prefix with an exception", set("p", "{"+toWeb+", policyTypes: [Egress], egress: [{to: ["+fmt.Sprintf(cidrs, client.addr)+"]}]}"), map[string]bool{
			"web>other udp/53": true, "web>vm tcp/80": true, "web>client tcp/80": false}},
		{"deny all in a namespace", set("p", "{podSelector: {}, policyTypes: [Ingress, Egress]}"), map[string]bool{
			"client>web tcp/80": false, "web>client udp/53": false, "other>web tcp/80": false, "web>other udp/53": false,
			"vm>web tcp/80": false, "other>vm tcp/80": false, "vm>other udp/53": false}},
		{"and allow all ingress to one", set("q", "{"+toWeb+", ingress: [{}]}"), map[string]bool{
			"other>web tcp/80": true, "client>web tcp/80": false, "other>client tcp/80": false}},
		{"to virtual machines from pods", func() {
			remove("q")()
			w.apply(policy("p", "{"+vms+", ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}"))
		}, map[string]bool{
			"web>vm tcp/80": true, "web>vm udp/53": true, "client>vm tcp/80": false, "other>vm udp/53": false, "vm>client tcp/80": true}},
		{"one that can't be compiled", from("{ipBlock: {cidr: 10.1.192.0/24, except: [fd00::/8]}}"), map[string]bool{
			"client>web tcp/80": false, "other>client tcp/80": true}},
		{"from pods with a label", from("{podSelector: {matchLabels: {role: good}}}"), map[string]bool{
			"client>web tcp/80": false}},
		{"a pod gets the label", func() { w.relabel(client, map[string]string{"role": "good"}) }, map[string]bool{
			"client>web tcp/80": true, "other>web tcp/80": false}},
		{"and loses it", func() { w.relabel(client, map[string]string{"app": "client"}) }, map[string]bool{
			"client>web tcp/80": false}},
		{"the pod that is protected is another", func() { w.relabel(web, map[string]string{"app": "db"}) }, map[string]bool{
			"client>web tcp/80": true}},
		{"from namespaces with a label", func() {
			w.relabel(web, map[string]string{"app": "web"})
			from("{namespaceSelector: {matchLabels: {team: good}}}")()
		}, map[string]bool{
			"other>web tcp/80": false}},
		{"a namespace gets the label", func() { w.apply("{apiVersion: v1, kind: Namespace, metadata: {name: other, labels: {team: good}}}") }, map[string]bool{
			"other>web tcp/80": true, "client>web tcp/80": false}},
		{"and loses it", func() { w.apply("{apiVersion: v1, kind: Namespace, metadata: {name: other, labels: {team: bad}}}") }, map[string]bool{
			"other>web tcp/80": false}},
	} {
		step.change()
		w.check(step.name, stations, step.want)
	}
	w.noComplaints()
}

// noComplaints checks that ovn-controller could use all matches: what it can't use
// it only logs.
func (w *world) noComplaints() {
	w.t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.Lab.Dir, "*", "ovn-controller.log"))
	w.must(err)
	if len(logs) != len(w.Lab.Nodes) {
		w.t.Errorf("logs %v", logs)
	}
	for _, log := range logs {
		data, err := os.ReadFile(log)
		w.must(err)
		for line := range bytes.Lines(data) {
			if bytes.Contains(line, []byte("parsing")) || bytes.Contains(line, []byte("yntax error")) {
				w.t.Errorf("%s: %s", log, line)
			}
		}
	}
}

// TestPolicyFollowsAddress has a policy match nothing before a pod's address is
// known, and follow it when it changes.
func TestPolicyFollowsAddress(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}})
	web := w.join("default", "web", 0, map[string]string{"app": "web"})
	peer := w.join("default", "peer", 1, map[string]string{"app": "peer"})
	moved := *peer.station
	moved.addr = netip.MustParseAddr("10.1.192.50")
	stations := map[string]*station{"web": web.station, "peer": peer.station, "moved": &moved}
	w.apply(policy("p", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: peer}}}]}]}"))
	w.check("with its address", stations, map[string]bool{"web>peer udp/53": true, "web>moved udp/53": false})
	w.setAddresses(peer)
	w.check("without address", stations, map[string]bool{"web>peer udp/53": false, "web>moved udp/53": false})
	w.setAddresses(peer, "10.1.192.50/24")
	w.check("with another one", stations, map[string]bool{"web>peer udp/53": false, "web>moved udp/53": true})
}

// TestLeaseUnderDeny has a pod that is denied everything from its creation get its
// lease, renew it and rebind it.
func TestLeaseUnderDeny(t *testing.T) {
	// How long after T2 a client asks again depends on the lease's time.
	w := newWorld(t, site.Options{Lab: lab.Options{DNSMasqArgs: renewing, LeaseTime: 2 * time.Minute}})
	w.apply(policy("p", "{podSelector: {}, policyTypes: [Ingress, Egress]}"))
	web := w.join("default", "web", 0, nil)
	other := w.join("other", "other", 0, nil)
	w.check("deny all", map[string]*station{"web": web.station, "other": other.station}, map[string]bool{
		"other>web tcp/80": false, "web>other udp/53": false})
	ack := "DHCPACK(br0) " + web.addr.String()
	w.awaitLog(ack, 3)
	now := w.Lab.Phys.Host(2)
	w.moveServer(now)
	w.awaitServer(web.pod, "default/lan", now)
	if n := strings.Count(w.Lab.DHCP.Log(), "DHCPDISCOVER"); n > 6 {
		t.Errorf("%d DISCOVERs in the server's log: the lease was lost", n)
	}
}

// TestQoS has the packets of a pod marked, and its traffic limited, from when its
// address is known, after that changes, and until it is gone.
func TestQoS(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}})
	lan := w.lan
	w.apply(fmt.Sprintf("{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {namespace: default, name: qos, labels: {net: lan}}, "+
		"spec: {config: %q}}", site.Network{Namespace: "default", Name: "qos", Config: lan.Config}.Conf()))
	qos := func(rule string) {
		w.apply("{apiVersion: k8s.ovn.org/v1alpha1, kind: NetworkQoS, metadata: {namespace: default, name: q}, spec: {priority: 1, " +
			"networkSelectors: [{networkSelectionType: NetworkAttachmentDefinitions, networkAttachmentDefinitionSelector: " +
			"{namespaceSelector: {}, networkSelector: {matchLabels: {net: lan}}}}], " +
			"podSelector: {matchLabels: {app: web}}, egress: [" + rule + "]}}")
	}
	peer := w.join("default", "peer", 1, nil)
	rules := func() string { return w.nbctl("--bare", "--columns=priority", "list", "QoS") }
	qos("{dscp: 46}")
	const expedited = 46 << 2
	web := w.join("default", "web", 0, map[string]string{"app": "web"})
	w.eventually(10*time.Second, func() string { return w.marked(web.station, peer.station, expedited) })
	moved := *web.station
	moved.addr = netip.MustParseAddr("10.1.192.50")
	w.setAddresses(web)
	w.eventually(10*time.Second, func() string {
		if got := rules(); got != "" {
			return "rules without an address: " + got
		}
		return w.marked(web.station, peer.station, 0)
	})
	w.setAddresses(web, "10.1.192.50/24")
	w.eventually(10*time.Second, func() string { return w.marked(&moved, peer.station, expedited) })
	if why := w.marked(peer.station, &moved, 0); why != "" {
		t.Errorf("another pod: %s", why)
	}

	const kbps, burst = 4000, 200
	qos(fmt.Sprintf("{dscp: 46, bandwidth: {rate: %d, burst: %d}}", kbps, burst))
	w.eventually(10*time.Second, func() string {
		if got := w.nbctl("--bare", "--columns=bandwidth", "list", "QoS"); !strings.Contains(got, "rate=4000") {
			return "bandwidth " + got
		}
		return ""
	})
	w.nbctl("--wait=hv", "sync")
	if rate := w.flood(&moved, peer.station, 3*time.Second); rate < kbps*0.8 || rate > kbps*1.2 {
		t.Errorf("%.0f kbit/s pass, want %d", rate, kbps)
	}

	w.must(w.Delete("pod", "default", "web"))
	w.eventually(10*time.Second, func() string { return rules() })
}

// setAddresses sets the addresses in a pod's annotation.
func (w *world) setAddresses(m *member, addresses ...string) {
	w.t.Helper()
	w.edit(m, func(pod *corev1.Pod) {
		networks, err := podnet.ParseNetworks(pod.Annotations[podnet.Annotation])
		w.must(err)
		e, _, err := networks.Entry("default/lan")
		w.must(err)
		e.Addrs = nil
		for _, a := range addresses {
			e.Addrs = append(e.Addrs, netip.MustParsePrefix(a))
		}
		networks, err = networks.With("default/lan", e)
		w.must(err)
		pod.Annotations[podnet.Annotation] = networks.String()
	})
}
