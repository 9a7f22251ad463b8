//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// TestPath follows two pods on two nodes from ADD to DEL: on the system's OVN and
// on a newer one, on an untagged network and on a VLAN, with the objects in a
// directory and in the Kubernetes API.
func TestPath(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}}).path()
	})
	t.Run("OVN 25.03 with VLAN", func(t *testing.T) {
		ovn, err := lab.OVN25()
		if err != nil {
			t.Fatal(err)
		}
		newWorld(t, site.Options{Lab: lab.Options{Nodes: 2, OVN: ovn, VLAN: 100}}).path()
	})
	t.Run("Kubernetes", func(t *testing.T) {
		newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}, Kube: kube.New(t, kube.Options{})}).path()
	})
}

func (w *world) path() {
	t := w.t
	before := []map[string]string{w.snapshot(0), w.snapshot(1)}
	type pod struct {
		call             site.Call
		name, netns, uid string
		mac, addr        string
	}
	pods := []*pod{{name: "web"}, {name: "db"}}
	var wg sync.WaitGroup
	for i, p := range pods {
		object, netns := w.newPod(p.name, i)
		p.netns, p.uid, p.call = netns, string(object.UID), w.Attach("ADD", object, w.lan, netns)
		wg.Go(func() {
			r, err := w.CNI(t.Context(), i, p.call)
			if err != nil {
				t.Errorf("ADD of %s: %v", p.name, err)
				return
			}
			if len(r.IPs) != 1 || len(r.Interfaces) != 2 {
				t.Errorf("result of %s: %v", p.name, r)
				return
			}
			p.addr, p.mac = r.IPs[0].Address.String(), r.Interfaces[1].Mac
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	gateway := w.Lab.Phys.Gateway.String()
	for i, p := range pods {
		ip, _, err := net.ParseCIDR(p.addr)
		w.must(err)

		lease := w.lease(p.mac)
		if lease == nil || lease.Addr.String() != ip.String() || lease.Hostname != p.name {
			t.Errorf("%s: lease %+v, want %s for host %s", p.name, lease, ip, p.name)
		}
		if want := podnet.DeriveMAC("site", "default", p.name, "default/lan").String(); p.mac != want {
			t.Errorf("%s: MAC %s, want %s", p.name, p.mac, want)
		}

		object, err := w.GetPod("default", p.name)
		w.must(err)
		var annotation map[string]map[string]any
		w.must(json.Unmarshal([]byte(object.Annotations[podnet.Annotation]), &annotation))
		entry := annotation["default/lan"]
		delete(entry, "dhcp")
		if diff := cmp.Diff(map[string]any{
			"ip_addresses": []any{p.addr}, "ip_address": p.addr, "mac_address": p.mac,
			"gateway_ips": []any{gateway}, "gateway_ip": gateway, "role": "secondary", "ipam_mode": "dhcp",
		}, entry); diff != "" {
			t.Errorf("%s: annotation (-want +got):\n%s", p.name, diff)
		}

		port := "default.lan_default_" + p.name
		w.eventually(5*time.Second, func() string {
			if got := w.nbctl("lsp-get-addresses", port); got != p.mac+" "+ip.String() {
				return fmt.Sprintf("addresses of %s: %q", port, got)
			}
			return ""
		})
		for column, want := range map[string]string{
			"port_security":                     p.mac + " " + ip.String(),
			"options:requested-chassis":         w.Lab.Nodes[i].Name,
			"options:iface-id-ver":              p.uid,
			"external_ids:namespace":            "default",
			"external_ids:pod":                  "true",
			"external_ids:k8s.ovn.org/network":  "lan",
			"external_ids:k8s.ovn.org/nad":      "default/lan",
			"external_ids:k8s.ovn.org/topology": "localnet",
			"dhcpv4_options":                    "[]",
			"up":                                "true",
		} {
			if got := strings.Trim(w.nbctl("get", "Logical_Switch_Port", port, column), "[]\""); got != strings.Trim(want, "[]") {
				t.Errorf("%s of %s: %q, want %q", column, port, got, want)
			}
		}

		host := hostInterface(w, i)
		for key, want := range map[string]string{
			"attached_mac": p.mac, "iface-id": port, "iface-id-ver": p.uid, "sandbox": p.netns, "pod-if-name": "net1",
			"ip_addresses": p.addr, "k8s.ovn.org/network": "lan", "k8s.ovn.org/nad": "default/lan",
		} {
			if got := strings.Trim(w.vsctl(i, "get", "Interface", host, "external_ids:"+key), "\""); got != want {
				t.Errorf("external_ids:%s of %s: %q, want %q", key, host, got, want)
			}
		}
		if got := w.vsctl(i, "get", "Port", host, "other_config:transient"); got != "\"true\"" {
			t.Errorf("other_config:transient of %s: %s", host, got)
		}

		link := w.in(p.netns, "ip", "-o", "link", "show", "net1")
		if !strings.Contains(link, p.mac) || !strings.Contains(link, "mtu 1500") {
			t.Errorf("%s: interface: %s", p.name, link)
		}
		if got := w.in(p.netns, "ip", "-o", "-4", "addr", "show", "net1"); !strings.Contains(got, p.addr) {
			t.Errorf("%s: address: %s, want %s", p.name, got, p.addr)
		}
		if got := w.in(p.netns, "ip", "route", "show", "default"); got != "" {
			t.Errorf("%s: default route without being asked for: %s", p.name, got)
		}
		peer, _, err := net.ParseCIDR(pods[1-i].addr)
		w.must(err)
		for _, target := range []string{gateway, peer.String()} {
			w.in(p.netns, "ping", "-c1", "-W2", target)
		}
		if again := w.cni(i, p.call); again.IPs[0].Address.String() != p.addr || again.Interfaces[0].Name != host {
			t.Errorf("%s: repeated ADD: %v", p.name, again)
		}
	}
	for i, p := range pods {
		p.call.Command = "DEL"
		w.cni(i, p.call)
		w.eventually(2*time.Second, func() string {
			if l := w.lease(p.mac); l != nil {
				return fmt.Sprintf("lease %+v is still there", *l)
			}
			return ""
		})
		if got := w.in(p.netns, "ip", "-o", "link"); strings.Contains(got, "net1") {
			t.Errorf("%s: after DEL: %s", p.name, got)
		}
		w.must(w.Delete("pod", "default", p.name))
	}
	for i, p := range pods {
		w.nothingLeft(i, before[i])
		w.cni(i, p.call) // once more is no error
	}
}

func hostInterface(w *world, node int) string {
	w.t.Helper()
	links, err := w.Lab.Nodes[node].Links()
	w.must(err)
	for _, l := range links {
		if strings.HasSuffix(l, "_0") {
			return l
		}
	}
	w.t.Fatalf("no host interface among %v", links)
	return ""
}

// TestAttachmentAsks covers what a pod asks of an attachment.
func TestAttachmentAsks(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{DNSMasqArgs: []string{
		"--dhcp-option=option:mtu,1400", "--dhcp-option=option:dns-server,192.0.2.53", "--dhcp-option=option:domain-search,example.org",
	}}})
	pod := w.Pod("default", "web", 0, "u1")
	pod.Annotations = map[string]string{podnet.SelectionAnnotation: `[{"name":"lan","mac":"02:00:00:00:00:77","interface":"eth1","default-route":["10.0.0.1"]}]`}
	w.must(w.PutPod(pod))
	call := w.Attach("ADD", pod, w.lan, w.netns("web"))
	call.IfName = "eth1"
	r := w.cni(0, call)
	if got := r.Interfaces[1]; got.Mac != "02:00:00:00:00:77" || got.Name != "eth1" || got.Mtu != 1400 {
		t.Errorf("interface %+v", got)
	}
	if w.lease("02:00:00:00:00:77") == nil {
		t.Error("the server has no lease for the MAC that was asked for")
	}
	if diff := cmp.Diff([]string{"192.0.2.53"}, r.DNS.Nameservers); diff != "" {
		t.Errorf("DNS servers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"example.org"}, r.DNS.Search); diff != "" {
		t.Errorf("DNS search (-want +got):\n%s", diff)
	}
	if got := w.in("web", "ip", "route", "show", "default"); !strings.Contains(got, "via "+w.Lab.Phys.Gateway.String()+" dev eth1") {
		t.Errorf("default route %q", got)
	}
	if got := w.in("web", "ip", "-o", "link", "show", "eth1"); !strings.Contains(got, "mtu 1400") {
		t.Errorf("interface: %s", got)
	}
}

// TestSameNADTwice attaches one pod twice to one network.
func TestSameNADTwice(t *testing.T) {
	w := newWorld(t, site.Options{})
	pod := w.Pod("default", "web", 0, "u1")
	pod.Annotations = map[string]string{podnet.SelectionAnnotation: "lan, lan"}
	w.must(w.PutPod(pod))
	netns := w.netns("web")
	for _, ifname := range []string{"net1", "net2"} {
		call := w.Attach("ADD", pod, w.lan, netns)
		call.IfName = ifname
		w.cni(0, call)
	}
	first, ok1 := w.entry(pod, "default/lan")
	second, ok2 := w.entry(pod, "default/lan/1")
	if !ok1 || !ok2 || first.MAC.String() == second.MAC.String() || len(first.Addrs) != 1 || len(second.Addrs) != 1 || first.Addrs[0] == second.Addrs[0] {
		t.Errorf("entries %+v and %+v", first, second)
	}
	w.eventually(5*time.Second, func() string {
		return cmp.Diff(second.MAC.String()+" "+second.Addrs[0].Addr().String(), w.nbctl("lsp-get-addresses", "default.lan.1_default_web"))
	})
}

// TestNewerSandbox makes a pod's second sandbox before the DEL of the first.
func TestNewerSandbox(t *testing.T) {
	w := newWorld(t, site.Options{})
	pod, old := w.newPod("web", 0)
	oldCall := w.Attach("ADD", pod, w.lan, old)
	addr := w.cni(0, oldCall).IPs[0].Address.String()
	newer := w.netns("newer")
	call := w.Attach("ADD", pod, w.lan, newer)
	r := w.cni(0, call)
	if got := r.IPs[0].Address.String(); got != addr {
		t.Errorf("the second sandbox has %s, the first had %s", got, addr)
	}
	oldCall.Command = "DEL"
	w.cni(0, oldCall)
	if log := w.Lab.DHCP.Log(); strings.Contains(log, "DHCPRELEASE") || w.lease(r.Interfaces[1].Mac) == nil {
		t.Errorf("the DEL of the first sandbox released the lease of the second:\n%s", log)
	}
	if e, ok := w.entry(pod, "default/lan"); !ok || len(e.Addrs) != 1 {
		t.Errorf("annotation entry %+v, %v", e, ok)
	}
	// A RELEASE would be before this in the server's log.
	w.in(newer, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	if log := w.Lab.DHCP.Log(); strings.Contains(log, "DHCPRELEASE") {
		t.Errorf("a lease was released:\n%s", log)
	}
}

// TestKilledDuringAdd ends the daemon by SIGKILL while an ADD waits for OVN.
func TestKilledDuringAdd(t *testing.T) {
	w := newWorld(t, site.Options{})
	w.must(w.StopController(0, syscall.SIGTERM))
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := w.CNI(ctx, 0, w.Attach("ADD", pod, w.lan, netns))
		result <- err
	}()
	w.eventually(10*time.Second, func() string {
		if w.vsctl(0, "--bare", "--columns=name", "find", "Interface", "external_ids:sandbox="+netns) == "" {
			return "the ADD has not come to its OVS port"
		}
		return ""
	})
	w.must(w.StopNode(0, syscall.SIGKILL))
	if err := <-result; err == nil || !strings.Contains(err.Error(), "node daemon") {
		t.Errorf("the ADD ended with %v", err)
	}
	w.must(w.StartNode(t.Context(), 0))
	w.nothingLeft(0, before)
	w.eventually(5*time.Second, func() string {
		if e, ok := w.entry(pod, "default/lan"); ok {
			return fmt.Sprintf("annotation entry %+v is still there", e)
		}
		return ""
	})
	w.must(w.StartController())
	w.cni(0, w.Attach("ADD", pod, w.lan, netns))
}
