//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// TestManyDelsAtOnce has the runtime repeat a DEL before the first has ended.
func TestManyDelsAtOnce(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	w.cni(0, call)
	call.Command = "DEL"
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := w.CNI(t.Context(), 0, call); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	wg.Wait()
	w.nothingLeft(0, before)
	w.noLease(pod)
	if n := strings.Count(w.Lab.DHCP.Log(), "DHCPRELEASE"); n != 1 {
		t.Errorf("the lease was released %d times", n)
	}
}

// TestDelDuringAdd ends an ADD by a DEL, at any moment of it.
func TestDelDuringAdd(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	for i := range 8 {
		pod, netns := w.newPod(fmt.Sprintf("web%d", i), 0)
		call := w.Attach("ADD", pod, w.lan, netns)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := w.CNI(t.Context(), 0, call) // ends either way
			t.Logf("ADD %d: %v", i, err)
		})
		del := call
		del.Command = "DEL"
		time.Sleep(time.Duration(i) * 20 * time.Millisecond) // the moment is what the test varies
		w.cni(0, del)
		wg.Wait()
		w.cni(0, del) // for an ADD that began after the first
		w.must(w.Delete("pod", pod.Namespace, pod.Name))
		w.nothingLeft(0, before)
		w.noLease(pod)
	}
}

// TestForeignLink has somebody else's interface under the name that the
// attachment's would get.
func TestForeignLink(t *testing.T) {
	w := newWorld(t, site.Options{})
	out, err := w.Lab.Nodes[0].Command(t.Context(), "ip", "link", "add", "sandbox-web_0", "type", "veth", "peer", "name", "foreign").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	if got := w.cni(0, call).Interfaces[0].Name; got != "sandbox-web_1" {
		t.Errorf("host interface %s", got)
	}
	call.Command = "DEL"
	w.cni(0, call)
	w.must(w.Delete("pod", "default", "web"))
	w.nothingLeft(0, before)
}

// TestCollidingNADs has two NADs whose logical ports would have one name.
func TestCollidingNADs(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{}, NodeArgs: []string{"--install-timeout", "3s"}})
	first, second := w.lan, w.lan
	first.Name, second.Name = "a-b", "a.b"
	w.must(w.PutNetwork(first))
	pod, netns := w.newPod("web", 0)
	pod.Annotations = map[string]string{podnet.SelectionAnnotation: "a-b, a.b"}
	w.must(w.PutPod(pod))
	addr := w.cni(0, w.Attach("ADD", pod, first, netns)).IPs[0].Address.IP
	w.must(w.PutNetwork(second))
	call := w.Attach("ADD", pod, second, netns)
	call.IfName = "net2"
	w.refused(0, call, 999, "default/a-b", "default/a.b")
	if got := w.nbctl("lsp-get-addresses", "default.a.b_default_web"); !strings.HasSuffix(got, " "+addr.String()) {
		t.Errorf("addresses of the first port: %q", got)
	}
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
}

// TestStatusCheckAndGC makes the calls beside ADD and DEL.
func TestStatusCheckAndGC(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	conf := func(changes map[string]any) []byte {
		var c map[string]any
		w.must(json.Unmarshal(w.lan.Conf(), &c))
		c["cniVersion"] = "1.1.0"
		for k, v := range changes {
			c[k] = v
		}
		data, err := json.Marshal(c)
		w.must(err)
		return data
	}
	w.cni(0, site.Call{Command: "STATUS", Config: conf(nil)})
	w.refused(0, site.Call{Command: "STATUS", Config: conf(map[string]any{"physicalNetworkName": "elsewhere"})}, 50, "elsewhere")

	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	call.Config = conf(nil)
	result := w.cni(0, call)
	check := call
	check.Command, check.Config = "CHECK", conf(map[string]any{"prevResult": result})
	w.cni(0, check)
	w.in(netns, "ip", "addr", "flush", "dev", "net1")
	w.refused(0, check, 999, result.IPs[0].Address.String())

	valid := []map[string]any{{"containerID": netns, "ifname": "net1"}}
	w.cni(0, site.Call{Command: "GC", Config: conf(map[string]any{"cni.dev/valid-attachments": valid})})
	if records, err := filepath.Glob(filepath.Join(w.StateDir(0), "attachments", "*")); err != nil || len(records) != 1 {
		t.Errorf("records after a GC that keeps the attachment: %v, error %v", records, err)
	}
	w.cni(0, site.Call{Command: "GC", Config: conf(map[string]any{"cni.dev/valid-attachments": []any{}})})
	w.must(w.Delete("pod", "default", "web"))
	w.nothingLeft(0, before)
	w.noLease(pod)
}

// TestBandwidth looks at the rows that limit a pod's bandwidth. This datapath
// doesn't enforce them.
func TestBandwidth(t *testing.T) {
	w := newWorld(t, site.Options{})
	pod := w.Pod("default", "web", 0, "u1")
	pod.Annotations = map[string]string{podnet.IngressBandwidthAnnotation: "20M", podnet.EgressBandwidthAnnotation: "10M"}
	w.must(w.PutPod(pod))
	call := w.Attach("ADD", pod, w.lan, w.netns("web"))
	host := w.cni(0, call).Interfaces[0].Name
	for want, args := range map[string][]string{
		"10000":      {"get", "Interface", host, "ingress_policing_rate"},
		"1000":       {"get", "Interface", host, "ingress_policing_burst"},
		`"20000000"`: {"get", "QoS", w.vsctl(0, "get", "Port", host, "qos"), "other_config:max-rate"},
	} {
		if got := w.vsctl(0, args...); got != want {
			t.Errorf("%v: %s, want %s", args, got, want)
		}
	}
	call.Command = "DEL"
	w.cni(0, call)
	if got := w.vsctl(0, "--bare", "--columns=_uuid", "list", "QoS"); got != "" {
		t.Errorf("QoS rows after DEL: %s", got)
	}
	pod.Annotations[podnet.EgressBandwidthAnnotation] = "fast"
	w.must(w.PutPod(pod))
	call.Command = "ADD"
	w.refused(0, call, 7, podnet.EgressBandwidthAnnotation, "fast")
}

// TestStandalone has one process be both daemons.
func TestStandalone(t *testing.T) {
	w := newWorld(t, site.Options{Standalone: true})
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	w.cni(0, call)
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	call.Command = "DEL"
	w.cni(0, call)
	w.must(w.Delete("pod", "default", "web"))
	w.nothingLeft(0, before)
}
