//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// TestWrongInput makes ADDs that must not succeed; each leaves nothing behind.
func TestWrongInput(t *testing.T) {
	w := newWorld(t, site.Options{})
	pod, netns := w.newPod("web", 0)
	other := w.Pod("default", "other", 0, "uid-other")
	other.Spec.NodeName = "node7"
	w.must(w.PutPod(other))
	w.in(netns, "ip", "link", "add", "taken", "type", "veth", "peer", "name", "taken2")
	before := w.snapshot(0)

	conf := func(changes map[string]any) []byte { return w.lanWith(changes).Conf() }
	for _, test := range []struct {
		name   string
		change func(*site.Call)
		code   uint
		want   []string
	}{
		{"bad JSON on stdin", func(c *site.Call) { c.Config = []byte(`{"name": "lan",`) }, 6, []string{"JSON"}},
		{"no stdin", func(c *site.Call) { c.Config = nil }, 6, []string{"JSON"}},
		{"no CNI_NETNS", func(c *site.Call) { c.Netns = "" }, 4, []string{"CNI_NETNS"}},
		{"a netns that does not exist", func(c *site.Call) { c.Netns = "/run/netns/none" }, 8, []string{"CNI_NETNS", "/run/netns/none"}},
		{"a file that is no netns", func(c *site.Call) { c.Netns = "/etc/hostname" }, 8, []string{"CNI_NETNS", "/etc/hostname"}},
		{"no bridge mapping", func(c *site.Call) { c.Config = conf(map[string]any{"physicalNetworkName": "elsewhere"}) }, 7,
			[]string{"physicalNetworkName", "elsewhere", "ovn-bridge-mappings"}},
		{"another ipam", func(c *site.Call) { c.Config = conf(map[string]any{"ipam": map[string]any{"type": "static"}}) }, 7, []string{"ipam.type", "static"}},
		{"subnets", func(c *site.Call) { c.Config = conf(map[string]any{"subnets": "10.0.0.0/24"}) }, 7, []string{"subnets", "10.0.0.0/24"}},
		{"layer2", func(c *site.Call) { c.Config = conf(map[string]any{"topology": "layer2"}) }, 7, []string{"topology", "layer2"}},
		{"role primary", func(c *site.Call) { c.Config = conf(map[string]any{"role": "primary"}) }, 7, []string{"role", "primary"}},
		{"VLAN", func(c *site.Call) { c.Config = conf(map[string]any{"vlanID": 5000}) }, 7, []string{"vlanID", "5000"}},
		{"an option that does not exist", func(c *site.Call) {
			c.Config = conf(map[string]any{"ipam": map[string]any{"type": "dhcp", "provide": []any{map[string]any{"option": "nonsense", "value": "x"}}}})
		}, 7, []string{"ipam.provide[0].option", "nonsense"}},
		{"an argument that is no host name", func(c *site.Call) {
			c.Args += ";NAME=a b"
			c.Config = conf(map[string]any{"ipam": map[string]any{"type": "dhcp", "provide": []any{map[string]any{"option": "12", "value": "web", "fromArg": "NAME"}}}})
		}, 7, []string{"ipam.provide", "a b"}},
		{"a metric", func(c *site.Call) {
			c.Config = conf(map[string]any{"ipam": map[string]any{"type": "dhcp", "priority": -5}})
		}, 7, []string{"ipam.priority", "-5"}},
		{"another UID", func(c *site.Call) { c.Args = strings.Replace(c.Args, "uid-web", "uid-old", 1) }, 3, []string{"K8S_POD_UID", "uid-old", "uid-web"}},
		{"no pod of this name", func(c *site.Call) { c.Args = strings.Replace(c.Args, "=web;", "=gone;", 1) }, 3, []string{"default/gone"}},
		{"no pod at all", func(c *site.Call) { c.Args = "" }, 4, []string{"CNI_ARGS", "K8S_POD_NAME"}},
		{"another node's pod", func(c *site.Call) {
			c.Args = strings.ReplaceAll(strings.Replace(c.Args, "=web;", "=other;", 1), "uid-web", "uid-other")
		}, 4, []string{"spec.nodeName", "node7"}},
		{"a device's name that is none", func(c *site.Call) { c.Config = conf(map[string]any{"deviceID": "../0000:3b:10.2"}) }, 7, []string{"deviceID", "../0000:3b:10.2"}},
		{"a device that is not there", func(c *site.Call) { c.Config = conf(map[string]any{"deviceID": "ffff:3b:10.2"}) }, 7, []string{"deviceID", "ffff:3b:10.2"}},
		{"a taken interface name", func(c *site.Call) { c.IfName = "taken" }, 4, []string{"CNI_IFNAME", "taken"}},
		{"an interface name of 16 characters", func(c *site.Call) { c.IfName = "abcdefghijklmnop" }, 4, []string{"interface name is too long", "abcdefghijklmnop"}},
		{"a CNI version that does not exist", func(c *site.Call) { c.Config = conf(map[string]any{"cniVersion": "9.0.0"}) }, 1, []string{"incompatible CNI versions", "9.0.0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			call := w.Attach("ADD", pod, w.lan, netns)
			test.change(&call)
			in := *w
			in.t = t
			in.refused(0, call, test.code, test.want...)
			in.nothingLeft(0, before)
		})
	}
	if _, ok := w.entry(pod, "default/lan"); ok {
		t.Error("an ADD that failed left its annotation entry")
	}
	w.cni(0, w.Attach("ADD", pod, w.lan, netns)) // all that was wrong was the input
}

// TestSilentServer has no DHCP server answer.
func TestSilentServer(t *testing.T) {
	const budget = 6 * time.Second
	w := newWorld(t, site.Options{NodeArgs: []string{"--add-timeout", budget.String(), "--install-timeout", "5s"}})
	w.must(w.Lab.DHCP.Stop())
	pod, netns := w.newPod("web", 0)
	before := w.snapshot(0)
	started := time.Now()
	w.refused(0, w.Attach("ADD", pod, w.lan, netns), 11, "acquire lease", "net1", "VLAN 0", w.Lab.Phys.Network, "DISCOVER")
	if took := time.Since(started); took > budget+5*time.Second {
		t.Errorf("the ADD took %v of %v", took, budget)
	}
	w.nothingLeft(0, before)
	if _, ok := w.entry(pod, "default/lan"); ok {
		t.Error("the annotation entry is still there")
	}
	w.must(w.Lab.DHCP.Start(t.Context()))
	w.cni(0, w.Attach("ADD", pod, w.lan, netns))
}

// TestNoController has nobody make the logical port: the ADD says who failed.
func TestNoController(t *testing.T) {
	w := newWorld(t, site.Options{NodeArgs: []string{"--install-timeout", "1s"}})
	w.must(w.StopController(0, syscall.SIGTERM))
	pod, netns := w.newPod("web", 0)
	before := w.snapshot(0)
	w.refused(0, w.Attach("ADD", pod, w.lan, netns), 11, "await OVN", "default.lan_default_web", "controller")
	w.nothingLeft(0, before)
}

// TestNoDaemon calls the plugin while the node daemon is down.
func TestNoDaemon(t *testing.T) {
	w := newWorld(t, site.Options{})
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	mac := w.cni(0, call).Interfaces[1].Mac
	w.must(w.StopNode(0, syscall.SIGKILL))
	call.Command = "DEL"
	w.refused(0, call, 11, "node daemon")
	w.must(w.StartNode(t.Context(), 0))
	w.cni(0, call)
	if l := w.lease(mac); l != nil {
		t.Errorf("lease %+v is still there", *l)
	}
}

// TestDelWithLess takes away what a DEL works with.
func TestDelWithLess(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	for _, test := range []struct {
		name string
		lose func(netns string)
	}{
		{"never-added", nil},
		{"netns-gone", func(netns string) { w.must(w.Lab.DelNetns(netns)) }},
		{"pod-gone", func(string) { w.must(w.Delete("pod", "default", "pod-gone")) }},
		{"interface-gone", func(netns string) { w.in(netns, "ip", "link", "del", "net1") }},
		{"records-gone", func(string) {
			w.must(w.StopNode(0, syscall.SIGTERM))
			w.must(os.RemoveAll(w.StateDir(0)))
			w.must(w.StartNode(t.Context(), 0))
		}},
	} {
		pod, netns := w.newPod(test.name, 0)
		call := w.Attach("ADD", pod, w.lan, netns)
		if test.lose != nil {
			w.cni(0, call)
			test.lose(netns)
		}
		call.Command = "DEL"
		w.cni(0, call)
		if test.name != "pod-gone" {
			w.must(w.Delete("pod", "default", test.name))
		}
		w.nothingLeft(0, before)
		if test.name != "records-gone" {
			w.noLease(pod)
		}
	}
}

// TestBrokenAnnotation has one pod with an annotation that can't be read; the
// others go on, and the problem is reported.
func TestBrokenAnnotation(t *testing.T) {
	w := newWorld(t, site.Options{})
	broken := w.Pod("default", "broken", 0, "uid-broken")
	broken.Annotations = map[string]string{"k8s.ovn.org/pod-networks": `{"default/lan":{"mac_address":"zz"}}`}
	w.must(w.PutPod(broken))
	pod, netns := w.newPod("web", 0)
	w.cni(0, w.Attach("ADD", pod, w.lan, netns))
	w.eventually(5*time.Second, func() string {
		report, err := os.ReadFile(filepath.Join(w.Objects, "events", "pod.default.broken.json"))
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(string(report), "mac_address") {
			return "the report does not name the field: " + string(report)
		}
		return ""
	})
}
