//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// renewing has the server tell clients to renew every three seconds: dnsmasq makes
// of a T1 that it finds too short the second before T2.
var renewing = []string{"--dhcp-option=option:T1,3", "--dhcp-option=option:T2,4"}

// moveServer has the DHCP server come back under another address of the physical network.
// Only a REQUEST to all servers finds it then.
func (w *world) moveServer(now netip.Addr) {
	w.t.Helper()
	w.must(w.Lab.DHCP.Stop())
	bits := w.Lab.Phys.Subnet.Bits()
	w.physAddr("del", netip.PrefixFrom(w.Lab.Phys.Gateway, bits))
	w.physAddr("add", netip.PrefixFrom(now, bits))
	w.must(w.Lab.DHCP.Start(w.t.Context()))
}

// aRebind is long enough for one of the REQUESTs of a client to be lost that has a lease of
// two minutes and a T2 of seconds: the next one comes after half of the time that is left.
const aRebind = 90 * time.Second

// awaitServer awaits that an annotation names a server.
func (w *world) awaitServer(pod *corev1.Pod, network string, server netip.Addr) {
	w.t.Helper()
	w.eventually(aRebind, func() string {
		if e, _ := w.entry(pod, network); e.DHCP == nil || e.DHCP.Server == nil || *e.DHCP.Server != server {
			return fmt.Sprintf("the lease's server is not %s: %+v", server, e.DHCP)
		}
		return ""
	})
}

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
	mac := w.cni(0, call).Interfaces[1].Mac
	const now = "10.1.192.77"
	w.must(w.Lab.DHCP.Stop())
	w.must(os.WriteFile(hosts, []byte(mac+","+now+"\n"), 0o644))
	w.must(w.Lab.DHCP.Start(t.Context()))
	w.has(pod, netns, netip.MustParsePrefix(now+"/24"))
	if got := w.cni(0, call).IPs[0].Address.IP.String(); got != now {
		t.Errorf("a repeated ADD gives %s", got)
	}
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	w.told(pod, 5*time.Second, "DHCPAddressChanged", now)
	call.Command = "DEL"
	w.cni(0, call)
	w.noLease(pod)
}

// TestLeaseLost has a lease end while there is no server. The pod stays without an
// address, and everybody knows, until there is a server again.
func TestLeaseLost(t *testing.T) {
	w := newWorld(t, site.Options{})
	kea, err := w.Lab.StartKea(t.Context(), 6*time.Second)
	w.must(err)
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	_, addr := address(t, w.cni(0, call))
	w.has(pod, netns, addr)
	w.must(kea.Stop())
	w.has(pod, netns, netip.Prefix{})
	w.told(pod, 5*time.Second, "DHCPLeaseLost", addr.Addr().String())
	w.must(kea.Start(t.Context()))
	w.has(pod, netns, addr)
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	call.Command = "DEL"
	w.cni(0, call)
	w.eventually(2*time.Second, func() string {
		if mac := kea.Holder(addr.Addr()); mac != "" {
			return "after DEL the address is leased to " + mac
		}
		return ""
	})
}

// has awaits that a pod has an address, and no other, wherever it is to be; or none, if
// that is the zero Prefix, because its lease was lost.
func (w *world) has(pod *corev1.Pod, netns string, addr netip.Prefix) {
	w.t.Helper()
	w.eventually(20*time.Second, func() string { return w.misses(pod, netns, addr) })
}

// misses is how a pod differs from what has awaits.
func (w *world) misses(pod *corev1.Pod, netns string, addr netip.Prefix) string {
	w.t.Helper()
	port := podnet.PortName("default/lan", pod.Namespace, pod.Name)
	vif := w.vsctl(0, "--bare", "--columns=name", "find", "Interface", "external_ids:iface-id="+port)
	e, _ := w.entry(pod, "default/lan")
	got := map[string]string{
		"link":       strings.Fields(w.in(netns, "ip", "-br", "link", "show", "net1"))[1],
		"interface":  fmt.Sprint(w.addrs(netns)),
		"vSwitch":    w.vsctl(0, "--if-exists", "get", "Interface", vif, "external_ids:ip_addresses"),
		"annotation": fmt.Sprint(e.Addrs),
		"OVN":        w.nbctl("--bare", "--columns=addresses", "find", "Logical_Switch_Port", "name="+port),
	}
	if e.DHCP != nil {
		got["state"] = e.DHCP.State
	}
	mac := podnet.DeriveMAC("site", pod.Namespace, pod.Name, "default/lan").String()
	want := map[string]string{"link": "UP", "interface": "[]", "vSwitch": "", "annotation": "[]", "OVN": mac, "state": podnet.StateLost}
	if addr.IsValid() {
		maps.Copy(want, map[string]string{
			"interface": "[" + addr.String() + "]", "vSwitch": strconv.Quote(addr.String()), "annotation": "[" + addr.String() + "]",
			"OVN": mac + " " + addr.Addr().String(), "state": podnet.StateBound,
		})
	}
	return cmp.Diff(want, got)
}

// addrs are the IPv4 addresses of a pod's interface, with the lengths of their prefixes.
func (w *world) addrs(netns string) (addrs []string) {
	w.t.Helper()
	for line := range strings.Lines(w.in(netns, "ip", "-o", "-4", "addr", "show", "dev", "net1")) {
		addrs = append(addrs, strings.Fields(line)[3])
	}
	return addrs
}

// TestKilledAtAnyMoment ends the daemon by SIGKILL twenty times during ADDs and
// DELs. Whenever the runtime has done what it does then, all agree on who has which
// lease. The environment variable KILLS sets another number.
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
	attached := func() map[string]*corev1.Pod {
		pods := map[string]*corev1.Pod{}
		for i, call := range calls {
			if live[i] {
				pods[call.ContainerID] = objects[i]
			}
		}
		return pods
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
		if kill%2 == 0 { // all others were deleted
			w.agree(attached())
		}
	}
	for i := range pods {
		if !live[i] {
			w.cni(0, calls[i])
			live[i] = true
		}
	}
	w.agree(attached())
	for i := range pods {
		calls[i].Command = "DEL"
		w.cni(0, calls[i])
		w.must(w.Delete("pod", "default", objects[i].Name))
		w.noLease(objects[i])
	}
	w.nothingLeft(0, before)
}

// agree awaits that the DHCP server, the records of node 0, the pods' interfaces, Open
// vSwitch, the annotations and OVN have these pods and no other, each with one address.
// The pods' keys are their network namespaces.
func (w *world) agree(pods map[string]*corev1.Pod) {
	w.t.Helper()
	var keys []string
	for netns := range pods {
		keys = append(keys, netns+":net1")
	}
	slices.Sort(keys)
	// A lease that could not be given back at once, and its records, may be there for
	// one more half minute.
	w.eventually(45*time.Second, func() string {
		leases, err := w.Lab.DHCP.Leases()
		w.must(err)
		if len(leases) != len(pods) {
			return fmt.Sprintf("%d leases for %d pods: %+v", len(leases), len(pods), leases)
		}
		for _, kind := range []string{"attachments", "leases"} {
			if diff := cmp.Diff(keys, w.records(kind)); diff != "" {
				return kind + " of record: " + diff
			}
		}
		for netns, pod := range pods {
			l := w.lease(podnet.DeriveMAC("site", pod.Namespace, pod.Name, "default/lan").String())
			if l == nil {
				return fmt.Sprintf("no lease of %s: %+v", pod.Name, leases)
			}
			if diff := w.misses(pod, netns, netip.PrefixFrom(l.Addr, w.Lab.Phys.Subnet.Bits())); diff != "" {
				return pod.Name + ": " + diff
			}
		}
		return ""
	})
}

// records are the keys of the records of one kind on node 0, sorted.
func (w *world) records(kind string) (keys []string) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.StateDir(0), kind, "*"))
	w.must(err)
	for _, file := range files {
		keys = append(keys, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return keys
}
