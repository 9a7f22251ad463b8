//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// launcher makes a pod of a virtual machine.
func (w *world) launcher(name, vm string, node int, created time.Time) *corev1.Pod {
	w.t.Helper()
	pod := w.Pod("default", name, node, "uid-"+name)
	pod.CreationTimestamp = metav1.NewTime(created)
	pod.Labels = map[string]string{"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": vm}
	pod.Annotations = map[string]string{"kubevirt.io/domain": vm}
	w.must(w.PutPod(pod))
	return pod
}

// vm is a virtual machine that has been added to the network.
type vm struct {
	pod   *corev1.Pod
	netns string
	call  site.Call
	mac   net.HardwareAddr
	addr  netip.Prefix
}

// newVM adds a virtual machine's pod to the network.
func (w *world) newVM(name string, node int) *vm {
	w.t.Helper()
	v := &vm{pod: w.launcher("virt-launcher-"+name, name, node, time.Time{}), netns: w.netns("sandbox-" + name)}
	v.call = w.Attach("ADD", v.pod, w.lan, v.netns)
	v.mac, v.addr = address(w.t, w.cni(node, v.call))
	return v
}

// address is what a result says of the pod's interface.
func address(t *testing.T, r *types100.Result) (net.HardwareAddr, netip.Prefix) {
	t.Helper()
	if len(r.IPs) != 1 || len(r.Interfaces) != 2 {
		t.Fatalf("result %v", r)
	}
	mac, err := net.ParseMAC(r.Interfaces[1].Mac)
	if err != nil {
		t.Fatal(err)
	}
	return mac, netip.MustParsePrefix(r.IPs[0].Address.String())
}

func (w *world) guest(v *vm) *lab.Guest {
	w.t.Helper()
	g, err := w.Lab.AddGuest(w.t.Context(), v.netns, "net1", v.mac, "guest")
	w.must(err)
	w.must(g.Start(w.t.Context()))
	return g
}

// bound awaits that the guest's client is given the address that its pod's ADD told.
func (w *world) bound(g *lab.Guest, want netip.Prefix, kind string, n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	e, err := g.Await(ctx, kind, n)
	w.must(err)
	if e.Addr != want {
		w.t.Errorf("the guest was given %v, its ADD discovered %v", e.Addr, want)
	}
}

// reported checks what the annotation and OVN have of a VM after its ADD.
func (w *world) reported(v *vm, node int) {
	w.t.Helper()
	e, _ := w.entry(v.pod, "default/lan")
	if len(e.Addrs) != 1 || e.Addrs[0] != v.addr || e.MAC.String() != v.mac.String() || e.IPAMMode != "dhcp" || e.Role != "secondary" ||
		len(e.Gateways) != 1 || e.Gateways[0] != w.Lab.Phys.Gateway || e.DHCP == nil || e.DHCP.State != "open" || e.DHCP.Server == nil || e.DHCP.Expires == nil {
		w.t.Errorf("annotation entry %+v, DHCP %+v", e, e.DHCP)
	}
	port := "default.lan_default_" + v.pod.Name
	w.eventually(5*time.Second, func() string {
		if got := w.nbctl("lsp-get-addresses", port); got != v.mac.String()+" "+v.addr.Addr().String() {
			return fmt.Sprintf("addresses of %s: %q", port, got)
		}
		return ""
	})
	if got := w.nbctl("lsp-get-port-security", port); got != v.mac.String() {
		w.t.Errorf("port security of %s: %q, want its MAC address alone", port, got)
	}
	if got := w.vsctl(node, "--bare", "--columns=external_ids", "find", "Interface", "external_ids:iface-id="+port); !strings.Contains(got, "ip_addresses="+v.addr.String()) {
		w.t.Errorf("external_ids of the OVS interface: %s", got)
	}
}

// TestVM follows a virtual machine from its pod's ADD, which discovers the address,
// to after its DEL. The guest's own DHCP client gets that address, and renews it.
func TestVM(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}})
	before := w.snapshot(0)
	v := w.newVM("vm1", 0)
	if want := podnet.DeriveVMMAC("site", "default", "vm1", "default/lan"); v.mac.String() != want.String() {
		t.Errorf("MAC %s, want %s", v.mac, want)
	}
	w.reported(v, 0)
	if got := w.in(v.netns, "ip", "-o", "addr", "show", "net1"); got != "" {
		t.Errorf("the pod's interface has an address: %s", got)
	}
	lease := w.lease(v.mac.String())
	if lease == nil || lease.Addr != v.addr.Addr() || lease.Hostname != "vm1" || hex.EncodeToString(lease.ClientID) != "01"+hex.EncodeToString(v.mac) {
		t.Fatalf("lease %+v", lease)
	}
	if _, addr := address(t, w.cni(0, v.call)); addr != v.addr {
		t.Errorf("a repeated ADD gives %s", addr)
	}

	g := w.guest(v)
	w.bound(g, v.addr, "bound", 1)
	w.must(g.Renew())
	w.bound(g, v.addr, "renew", 1)
	log := w.Lab.DHCP.Log()
	if strings.Contains(log, "DHCPNAK") || strings.Contains(log, "DHCPRELEASE") || strings.Contains(log, "DHCPDECLINE") {
		t.Errorf("the server's log:\n%s", log)
	}
	check := v.call
	check.Command = "CHECK"
	w.cni(0, check)

	// A pod on the other node, on the same network and from the same pool.
	pod, netns := w.newPod("web", 1)
	_, addr := address(t, w.cni(1, w.Attach("ADD", pod, w.lan, netns)))
	if addr == v.addr {
		t.Errorf("pod and guest both have %s", addr)
	}
	w.in(netns, "ping", "-c1", "-W2", v.addr.Addr().String())
	w.in(g.Netns, "ping", "-c1", "-W2", addr.Addr().String())
	w.in(g.Netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())

	// The guest is switched off, and its pod deleted: the lease stays the guest's.
	w.must(g.Stop(t.Context()))
	v.call.Command = "DEL"
	w.cni(0, v.call)
	w.must(w.Delete("pod", "default", v.pod.Name))
	before["NB ports"] = "lan_ovn_localnet_port\n\ndefault.lan_default_web"
	w.nothingLeft(0, before)
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String()) // a RELEASE would be before this in the log
	if log := w.Lab.DHCP.Log(); strings.Contains(log, "DHCPRELEASE") || w.lease(v.mac.String()) == nil {
		t.Errorf("the DEL of the pod gave the guest's lease back:\n%s", log)
	}

	// It is started again, on the other node, in a pod of another name.
	again := &vm{pod: w.launcher("virt-launcher-vm1-again", "vm1", 1, time.Time{}), netns: w.netns("again")}
	again.call = w.Attach("ADD", again.pod, w.lan, again.netns)
	again.mac, again.addr = address(t, w.cni(1, again.call))
	if again.mac.String() != v.mac.String() || again.addr != v.addr {
		t.Errorf("started again it has %s and %s, before: %s and %s", again.mac, again.addr, v.mac, v.addr)
	}
	w.bound(w.guest(again), v.addr, "bound", 1)
}

// kea puts Kea in dnsmasq's place, with the shortest leases that udhcpc takes.
func (w *world) kea() *lab.Kea {
	w.t.Helper()
	kea, err := w.Lab.StartKea(w.t.Context(), 16*time.Second)
	w.must(err)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Log(kea.Log())
		}
		if err := kea.Stop(); err != nil {
			w.t.Error(err)
		}
	})
	return kea
}

// TestVMKea has a guest renew by itself, through its port, a lease of a few seconds
// from another DHCP server. The node daemon is restarted meanwhile, and does not
// renew anything.
func TestVMKea(t *testing.T) {
	w := newWorld(t, site.Options{})
	kea := w.kea()
	v := w.newVM("vm1", 0)
	w.reported(v, 0)
	g := w.guest(v)
	w.bound(g, v.addr, "bound", 1)
	w.bound(g, v.addr, "renew", 1)
	w.must(w.StopNode(0, 15))
	w.must(w.StartNode(t.Context(), 0))
	w.bound(g, v.addr, "renew", 2)
	if got := kea.Transactions(); len(got) != 2 {
		t.Errorf("the lease was granted in transactions %v, want one of the ADD and one of the guest", got)
	}
	v.call.Command = "DEL"
	w.cni(0, v.call)
	if mac := kea.Holder(v.addr.Addr()); mac != v.mac.String() {
		t.Errorf("after DEL the address is leased to %q", mac)
	}
}

// TestVMAsks has a VM with the MAC address of its network selection, and with a host
// name and a client id of the network's.
func TestVMAsks(t *testing.T) {
	w := newWorld(t, site.Options{})
	pod := w.launcher("virt-launcher-vm1", "vm1", 0, time.Time{})
	pod.Annotations[podnet.SelectionAnnotation] = `[{"name":"lan","mac":"02:00:00:00:00:77"}]`
	w.must(w.PutPod(pod))
	network := w.lanWith(map[string]any{"ipam": map[string]any{"type": "dhcp", "provide": []any{
		map[string]any{"option": "host-name", "value": "by-network"}, map[string]any{"option": "dhcp-client-identifier", "value": "abc"},
	}}})
	mac, _ := address(t, w.cni(0, w.Attach("ADD", pod, network, w.netns("vm1"))))
	if mac.String() != "02:00:00:00:00:77" {
		t.Errorf("MAC %s", mac)
	}
	if l := w.lease(mac.String()); l == nil || l.Hostname != "by-network" || string(l.ClientID) != "abc" {
		t.Errorf("lease %+v", l)
	}
}

// TestVMMigrationTarget adds the second pod of a running VM: it has the first one's
// MAC and address, and the DHCP server hears nothing of it.
func TestVMMigrationTarget(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}})
	began := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	source := w.launcher("virt-launcher-vm1-a", "vm1", 0, began)
	source.Annotations[podnet.SelectionAnnotation] = `[{"name":"lan","mac":"02:00:00:00:00:77"}]`
	w.must(w.PutPod(source))
	mac, addr := address(t, w.cni(0, w.Attach("ADD", source, w.lan, w.netns("source"))))
	said := strings.Count(w.Lab.DHCP.Log(), "\n")

	target := w.launcher("virt-launcher-vm1-b", "vm1", 1, began.Add(time.Minute))
	call := w.Attach("ADD", target, w.lan, w.netns("target"))
	targetMAC, targetAddr := address(t, w.cni(1, call))
	if targetMAC.String() != mac.String() || targetAddr != addr {
		t.Errorf("the target has %s and %s, the source %s and %s", targetMAC, targetAddr, mac, addr)
	}
	if e, _ := w.entry(target, "default/lan"); len(e.Addrs) != 1 || e.Addrs[0] != addr || e.DHCP == nil || e.DHCP.State != "open" || e.DHCP.Server == nil {
		t.Errorf("annotation entry %+v", e)
	}
	if got := w.nbctl("lsp-get-addresses", "default.lan_default_"+target.Name); got != "" {
		t.Errorf("addresses of the target's port: %q", got)
	}
	if got := w.nbctl("lsp-get-enabled", "default.lan_default_"+target.Name); got != "disabled" {
		t.Errorf("the target's port is %s", got)
	}
	if got := w.nbctl("lsp-get-port-security", "default.lan_default_"+target.Name); got != mac.String() {
		t.Errorf("port security of the target's port: %q", got)
	}
	if got := w.nbctl("lsp-get-addresses", "default.lan_default_"+source.Name); got != mac.String()+" "+addr.Addr().String() {
		t.Errorf("addresses of the source's port: %q", got)
	}
	// The migration fails: the target goes, and the source keeps its address.
	call.Command = "DEL"
	w.cni(1, call)
	if log := w.Lab.DHCP.Log(); strings.Count(log, "\n") != said || w.lease(mac.String()) == nil {
		t.Errorf("the DHCP server has heard of the migration:\n%s", log)
	}
}

// TestVMFailedAdd has an ADD fail after the server has granted the lease, which is
// given back; and not when another pod of the VM has it.
func TestVMFailedAdd(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	w.restart("error before do publish address")
	pod, netns := w.launcher("virt-launcher-vm1", "vm1", 0, time.Time{}), w.netns("vm1")
	call := w.Attach("ADD", pod, w.lan, netns)
	w.refused(0, call, 999, "publish address")
	w.nothingLeft(0, before)
	if log := w.Lab.DHCP.Log(); strings.Count(log, "DHCPACK") != 1 || strings.Count(log, "DHCPRELEASE") != 1 {
		t.Errorf("the server's log:\n%s", log)
	}
	mac, addr := address(t, w.cni(0, call))
	if l := w.lease(mac.String()); l == nil || l.Addr != addr.Addr() {
		t.Errorf("lease %+v", l)
	}
}

// TestVMSandboxGone has the network namespace of a virtual machine's pod go without a
// DEL. All goes that its ADD made, but for the lease, which is the guest's. The port of
// another one stays.
func TestVMSandboxGone(t *testing.T) {
	w := newWorld(t, site.Options{})
	stays := w.newVM("vm1", 0)
	before := w.snapshot(0)
	gone := w.newVM("vm2", 0)
	w.must(w.StopNode(0, 15))
	w.must(w.Lab.DelNetns(gone.netns))
	w.eventually(10*time.Second, func() string { // the kernel takes its time
		if links := w.snapshot(0)["links"]; links != before["links"] {
			return "the node still has interfaces " + links
		}
		return ""
	})
	w.must(w.StartNode(t.Context(), 0))
	w.nothingLeft(0, before)
	if _, ok := w.entry(gone.pod, "default/lan"); ok {
		t.Error("its pod still has an entry in its annotation")
	}
	if w.lease(gone.mac.String()) == nil {
		t.Error("the guest's lease was given back")
	}
	w.reported(stays, 0)
}

// TestVMNamed has a name of a virtual machine that no host can have: it is its key for
// everything but the DHCP server, which is not told.
func TestVMNamed(t *testing.T) {
	w := newWorld(t, site.Options{})
	for name, want := range map[string]string{"a machine": "", "db.example": "db"} {
		pod := w.launcher("virt-launcher-"+name[:1], "vm1", 0, time.Time{})
		pod.Annotations["kubevirt.io/domain"] = name
		w.must(w.PutPod(pod))
		mac, addr := address(t, w.cni(0, w.Attach("ADD", pod, w.lan, w.netns(pod.Name))))
		if l := w.lease(mac.String()); l == nil || l.Addr != addr.Addr() || l.Hostname != want {
			t.Errorf("%q: lease %+v, want one for host %q", name, l, want)
		}
	}
}

// TestVMMachine has an emulated machine for a guest, with a kernel of its own, on a tap
// behind a bridge in the pod's network namespace.
func TestVMMachine(t *testing.T) {
	w := newWorld(t, site.Options{})
	kea := w.kea()
	v := w.newVM("vm1", 0)
	g, err := w.Lab.AddMachine(t.Context(), v.netns, "net1", v.mac, "guest")
	w.must(err)
	began := time.Now()
	w.must(g.Start(t.Context()))
	t.Cleanup(func() {
		if t.Failed() {
			log, err := os.ReadFile(g.Log())
			t.Logf("%s\n%v", log, err)
		}
	})
	w.bound(g, v.addr, "bound", 1)
	t.Logf("the machine has its address %v after its start", time.Since(began).Round(time.Millisecond))
	w.bound(g, v.addr, "renew", 1)
	pod, netns := w.newPod("web", 0)
	if _, addr := address(t, w.cni(0, w.Attach("ADD", pod, w.lan, netns))); addr == v.addr {
		t.Errorf("pod and guest both have %s", addr)
	}
	w.in(netns, "ping", "-c1", "-W5", v.addr.Addr().String())
	if mac := kea.Holder(v.addr.Addr()); mac != v.mac.String() {
		t.Errorf("the address is leased to %q", mac)
	}
}

// TestVMWithExternalDHCP has the leases of pods kept by the CNI dhcp plugin's daemon,
// which is not even running: a virtual machine needs none of it.
func TestVMWithExternalDHCP(t *testing.T) {
	w := newWorld(t, site.Options{NodeArgs: []string{"--dhcp", tool(t, "dhcp")}})
	v := w.newVM("vm1", 0)
	w.reported(v, 0)
	v.call.Command = "DEL"
	w.cni(0, v.call)
	if l := w.lease(v.mac.String()); l == nil || l.Addr != v.addr.Addr() {
		t.Errorf("lease %+v after DEL", l)
	}
}
