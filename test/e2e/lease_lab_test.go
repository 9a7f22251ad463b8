//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// renewing has the server tell clients to renew every three seconds: dnsmasq makes
// of a T1 that it finds too short the second before T2.
var renewing = []string{"--dhcp-option=option:T1,3", "--dhcp-option=option:T2,4"}

// awaitLog awaits a number of messages in the DHCP server's log.
func (w *world) awaitLog(message string, n int) {
	w.t.Helper()
	w.eventually(15*time.Second, func() string {
		if got := strings.Count(w.Lab.DHCP.Log(), message); got < n {
			return fmt.Sprintf("%d of %d %s in the server's log", got, n, message)
		}
		return ""
	})
}

// TestRenewals has leases renewed, across a restart and a crash of the daemon too.
func TestRenewals(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{DNSMasqArgs: renewing}})
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	addr := w.cni(0, call).IPs[0].Address.IP.String()
	ack := "DHCPACK(br0) " + addr
	w.awaitLog(ack, 2)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		w.must(w.StopNode(0, sig))
		w.must(w.StartNode(t.Context(), 0))
		w.awaitLog(ack, strings.Count(w.Lab.DHCP.Log(), ack)+2)
	}
	if got := w.in(netns, "ip", "-o", "-4", "addr", "show", "net1"); !strings.Contains(got, addr) {
		t.Errorf("address: %s, want %s", got, addr)
	}
	if n := strings.Count(w.Lab.DHCP.Log(), "DHCPDISCOVER"); n > 3 {
		t.Errorf("%d DISCOVERs in the server's log: a renewal was a new exchange", n)
	}
	call.Command = "DEL"
	w.cni(0, call)
	w.noLease(pod)
}

// TestServerChangesAddress has the server refuse a renewal and give another
// address: everything follows.
func TestServerChangesAddress(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	w := newWorld(t, site.Options{Lab: lab.Options{DNSMasqArgs: append([]string{"--dhcp-hostsfile=" + hosts}, renewing...)}})
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	r := w.cni(0, call)
	mac, host, old := r.Interfaces[1].Mac, r.Interfaces[0].Name, r.IPs[0].Address.IP.String()
	const now = "10.1.192.77"
	w.must(w.Lab.DHCP.Stop())
	w.must(os.WriteFile(hosts, []byte(mac+","+now+"\n"), 0o644))
	w.must(w.Lab.DHCP.Start(t.Context()))
	w.eventually(20*time.Second, func() string {
		if got := w.nbctl("lsp-get-addresses", "default.lan_default_web"); got != mac+" "+now {
			return "addresses of the port: " + got
		}
		return ""
	})
	if got := w.in(netns, "ip", "-o", "-4", "addr", "show", "net1"); !strings.Contains(got, now+"/24") || strings.Contains(got, old+"/") {
		t.Errorf("addresses: %s", got)
	}
	if got := w.vsctl(0, "get", "Interface", host, "external_ids:ip_addresses"); !strings.Contains(got, now+"/24") {
		t.Errorf("external_ids:ip_addresses: %s", got)
	}
	if e, _ := w.entry(pod, "default/lan"); len(e.Addrs) != 1 || e.Addrs[0] != netip.MustParsePrefix(now+"/24") || e.DHCP.State != "bound" {
		t.Errorf("annotation entry %+v", e)
	}
	if got := w.cni(0, call).IPs[0].Address.IP.String(); got != now {
		t.Errorf("a repeated ADD gives %s", got)
	}
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	w.eventually(5*time.Second, func() string {
		events, err := os.ReadFile(filepath.Join(w.Objects, "events", "pod.default.web.events.json"))
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(string(events), "DHCPAddressChanged") || !strings.Contains(string(events), now) {
			return "no event of the change: " + string(events)
		}
		return ""
	})
	call.Command = "DEL"
	w.cni(0, call)
	w.noLease(pod)
}

// TestReleaseLater has no server when a pod goes, and its network namespace gone
// by the time there is one.
func TestReleaseLater(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{VLAN: 100}})
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	w.cni(0, call)
	w.must(w.Lab.DelNetns(netns))
	call.Command = "DEL"
	w.cni(0, call)
	w.must(w.Delete("pod", "default", "web"))
	w.noLease(pod)
	w.nothingLeft(0, before)
	if got := w.vsctl(0, "--bare", "--columns=name", "find", "Interface", "type=internal"); strings.Contains(got, "release") {
		t.Errorf("internal ports are left: %s", got)
	}
}

// TestSuccessorKeepsLease has a pod made anew on another node while the former
// one's lease is still to be given back: it is not, since it is the new one's.
func TestSuccessorKeepsLease(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}})
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	mac := w.cni(0, call).Interfaces[1].Mac
	// The first node is cut off, and its pod with it.
	uplink := func(state string) {
		out, err := w.Lab.Nodes[0].Command(t.Context(), "ip", "link", "set", "phys0", state).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	uplink("down")
	call.Command = "DEL"
	w.cni(0, call)
	w.must(w.Delete("pod", "default", "web"))
	successor := w.Pod("default", "web", 1, "uid-successor")
	w.must(w.PutPod(successor))
	w.cni(1, w.Attach("ADD", successor, w.lan, w.netns("successor")))
	uplink("up")
	w.eventually(60*time.Second, func() string {
		records, err := filepath.Glob(filepath.Join(w.StateDir(0), "*", "*"))
		w.must(err)
		if len(records) > 0 {
			return fmt.Sprintf("records are left: %v", records)
		}
		return ""
	})
	if log := w.Lab.DHCP.Log(); strings.Contains(log, "DHCPRELEASE") || w.lease(mac) == nil {
		t.Errorf("the lease of the new pod was released:\n%s", log)
	}
}

// TestKilledAtAnyMoment ends the daemon by SIGKILL twenty times during ADDs and
// DELs. In the end the server's leases, the records, the interfaces and the
// annotations agree. The environment variable KILLS sets another number.
func TestKilledAtAnyMoment(t *testing.T) {
	kills := 20
	if n := os.Getenv("KILLS"); n != "" {
		if _, err := fmt.Sscan(n, &kills); err != nil {
			t.Fatalf("KILLS=%s: %v", n, err)
		}
	}
	const pods = 4
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	objects, calls, live := make([]*corev1.Pod, pods), make([]site.Call, pods), make([]bool, pods)
	for i := range pods {
		pod, netns := w.newPod(fmt.Sprintf("web%d", i), 0)
		objects[i], calls[i] = pod, w.Attach("ADD", pod, w.lan, netns)
	}
	for kill := range kills {
		var wg sync.WaitGroup
		for i := range pods {
			wg.Go(func() {
				call := calls[i]
				if call.Command = "ADD"; live[i] {
					call.Command = "DEL"
				}
				if _, err := w.CNI(t.Context(), 0, call); err == nil {
					live[i] = !live[i]
				}
			})
		}
		time.Sleep(rand.N(150 * time.Millisecond)) // the moment is what the test varies
		w.must(w.StopNode(0, syscall.SIGKILL))
		w.must(w.StartNode(t.Context(), 0))
		wg.Wait()
		for i := range pods {
			// A runtime deletes what it could not add or delete.
			if kill%2 == 0 == live[i] {
				continue
			}
			call := calls[i]
			call.Command = "DEL"
			w.cni(0, call)
			live[i] = false
		}
	}
	for i := range pods {
		if !live[i] {
			w.cni(0, calls[i])
		}
		e, ok := w.entry(objects[i], "default/lan")
		if !ok || len(e.Addrs) != 1 {
			t.Fatalf("annotation entry of pod %d: %+v", i, e)
		}
		if l := w.lease(e.MAC.String()); l == nil || l.Addr != e.Addrs[0].Addr() {
			t.Errorf("lease of pod %d: %+v, want %s", i, l, e.Addrs[0])
		}
		if got := w.in(calls[i].ContainerID, "ip", "-o", "-4", "addr", "show", "net1"); !strings.Contains(got, e.Addrs[0].String()) {
			t.Errorf("address of pod %d: %s, want %s", i, got, e.Addrs[0])
		}
	}
	leases, err := w.Lab.DHCP.Leases()
	w.must(err)
	if len(leases) != pods {
		t.Errorf("%d leases for %d pods: %+v", len(leases), pods, leases)
	}
	for i := range pods {
		calls[i].Command = "DEL"
		w.cni(0, calls[i])
		w.must(w.Delete("pod", "default", objects[i].Name))
		w.noLease(objects[i])
	}
	w.nothingLeft(0, before)
}

// TestCompletedPod has a Job's pod complete: its port goes, but not before the
// RELEASE has passed, and its lease is given back.
func TestCompletedPod(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	pod, netns := w.newPod("job", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	w.cni(0, call)
	now, err := w.GetPod("default", "job")
	w.must(err)
	now.Status.Phase = corev1.PodSucceeded
	w.must(w.PutPod(now))
	call.Command = "DEL"
	w.cni(0, call)
	w.noLease(pod)
	w.nothingLeft(0, before)
	if n := strings.Count(w.Lab.DHCP.Log(), "DHCPRELEASE"); n != 1 {
		t.Errorf("the lease was released %d times", n)
	}
}
