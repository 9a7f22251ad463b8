// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

package attach

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/vfio/card"
)

func TestAttach(t *testing.T) {
	n := newNode(t)
	t.Run("virtual machine", func(t *testing.T) { testVirtualMachine(n.forTest(t)) })
	t.Run("daemon killed on loan", func(t *testing.T) { testKilledOnLoan(n.forTest(t)) })
	t.Run("daemon killed after loan", func(t *testing.T) { testCutOff(n.forTest(t), "launcher3", "vm3", "crash before do close record") })
	t.Run("failed after loan", func(t *testing.T) { testCutOff(n.forTest(t), "launcher4", "vm4", "error after do acquire lease") })
	t.Run("device of another's machine", func(t *testing.T) { testInUse(n.forTest(t)) })
	t.Run("migration target", func(t *testing.T) { testMigrationTarget(n.forTest(t)) })
	t.Run("pod with device of a virtual machine", func(t *testing.T) { testPodRefused(n.forTest(t)) })
	t.Run("pod with interface", func(t *testing.T) { testPod(n.forTest(t)) })
}

// testVirtualMachine attaches a virtual machine's pod: the address is found out
// by way of the device, and left to the guest.
func testVirtualMachine(n *node) {
	device := n.vfs[0]
	n.mustBelongToVFIO(device)
	pod, call := n.attach("launcher", "vm1", device)
	began := time.Now()
	result := n.cni(call)
	n.t.Logf("ADD with a hand-off of %s: %v", device, time.Since(began).Round(time.Millisecond))

	n.mustBelongToVFIO(device)
	mac := podnet.DeriveVMMAC("site", "default", "vm1", nadKey).String()
	if len(result.Interfaces) != 2 || result.Interfaces[1].Mac != mac || result.Interfaces[1].PciID != device || result.Interfaces[0].Name != card.Far {
		n.t.Errorf("interfaces of the result: %v", result.Interfaces)
	}
	if len(result.IPs) != 1 {
		n.t.Fatalf("addresses of the result: %v", result.IPs)
	}
	addr, _ := netip.AddrFromSlice(result.IPs[0].Address.IP.To4())
	leases := n.leases(mac)
	if len(leases) != 1 || leases[0].Addr != addr || leases[0].Hostname != "vm1" {
		n.t.Errorf("leases of the server: %v, want one of %v for vm1", leases, addr)
	}
	if e := n.entry(pod); e.MAC.String() != mac || len(e.Addrs) != 1 || e.Addrs[0].Addr() != addr || e.IPAMMode != "dhcp" {
		n.t.Errorf("annotation: %+v, want %s and %v by DHCP", e, mac, addr)
	}
	n.mustHavePort(pod, mac, addr.String())
	for key, want := range map[string]string{
		"iface-id": podnet.PortName(nadKey, pod.Namespace, pod.Name), "vf-netdev-name": device, "vf-is-vfio": "true", "attached_mac": mac,
	} {
		if got := n.externalID(key); got != want {
			n.t.Errorf("external_ids:%s of %s: %q, want %q", key, card.Far, got, want)
		}
	}
	// The guest has that address when it starts.
	if pf := n.pf(); !strings.Contains(pf, mac) {
		n.t.Errorf("no virtual function of %s has %s: %s", card.PF, mac, pf)
	}

	// The guest runs: nothing touches its device any more.
	use, err := card.Open(device)
	n.must(err)
	if again := n.cni(call); again.IPs[0].Address.String() != result.IPs[0].Address.String() {
		n.t.Errorf("repeated ADD: %v, first %v", again.IPs, result.IPs)
	}
	check := call
	check.Command = "CHECK"
	n.cni(check)
	n.del(pod, call)
	n.must(use.Close())
	n.mustBelongToVFIO(device)
	if pf := n.pf(); strings.Contains(pf, mac) {
		n.t.Errorf("after DEL a virtual function of %s has the guest's %s: %s", card.PF, mac, pf)
	}
	if leases := n.leases(mac); len(leases) != 1 {
		n.t.Errorf("leases of the server after DEL: %v, want the guest's", leases)
	}
}

// testKilledOnLoan kills the daemon while it has the device's interface and an
// offer. The next one gives the device back.
func testKilledOnLoan(n *node) {
	device := n.vfs[0]
	n.restart("crash offer selected")
	pod, call := n.attach("launcher2", "vm2", device)
	if _, err := n.CNI(n.t.Context(), 0, call); err == nil {
		n.t.Fatal("the daemon was not killed")
	}
	if driver := card.Driver(device); driver != "igbvf" {
		n.t.Errorf("the killed daemon left the device to %q", driver)
	}
	n.restart("")
	n.mustBelongToVFIO(device)
	if open, err := filepath.Glob(filepath.Join(n.StateDir(0), "handoffs", "*")); err != nil || len(open) > 0 {
		n.t.Errorf("open hand-offs: %v, %v", open, err)
	}
	n.cni(call)
	n.mustBelongToVFIO(device)
	n.del(pod, call)
}

// testCutOff has an ADD end when the device is back with the virtual machine's MAC
// address, and all is undone: the lease, of which no guest knows, is given back.
func testCutOff(n *node, name, vm, fault string) {
	device := n.vfs[0]
	n.restart(fault)
	pod, call := n.attach(name, vm, device)
	_, err := n.CNI(n.t.Context(), 0, call)
	if err == nil {
		n.t.Fatal("the ADD was not cut off")
	}
	n.t.Log(err)
	mac := podnet.DeriveVMMAC("site", "default", vm, nadKey).String()
	if log := n.Lab.DHCP.Log(); !strings.Contains(log, "DHCPACK(") || !strings.Contains(log[strings.LastIndex(log, "DHCPACK("):], mac) {
		n.t.Errorf("the server has acknowledged nothing to %s:\n%s", mac, log)
	}
	if strings.HasPrefix(fault, "crash") {
		if pf := n.pf(); !strings.Contains(pf, mac) {
			n.t.Errorf("no virtual function was left with %s: %s", mac, pf)
		}
		n.restart("")
	}
	n.nothingLeft(pod, mac, device)
	n.cni(call)
	n.mustBelongToVFIO(device)
	n.del(pod, call)
}

// testInUse has a virtual machine's pod get a device that another process has open.
func testInUse(n *node) {
	device := n.vfs[0]
	use, err := card.Open(device)
	n.must(err)
	before := n.pf()
	pod, call := n.attach("launcher5", "vm5", device)
	_, err = n.CNI(n.t.Context(), 0, call)
	var refusal *types.Error
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Error(), "open in process") {
		n.t.Errorf("ADD: %v", err)
	}
	if after := n.pf(); after != before {
		n.t.Errorf("virtual functions before: %s; after: %s", before, after)
	}
	n.must(use.Close())
	n.nothingLeft(pod, podnet.DeriveVMMAC("site", "default", "vm5", nadKey).String(), device)
	n.cni(call)
	n.del(pod, call)
}

// testMigrationTarget attaches a pod that a virtual machine migrates to: nobody is
// asked, but the device is made the machine's all the same, as CHECK says.
func testMigrationTarget(n *node) {
	device := n.vfs[0]
	source, _ := n.attach("launcher6-source", "vm6", device)
	source.Annotations[podnet.Annotation] = `{"` + nadKey + `":{"mac_address":"02:00:00:00:00:06","ip_addresses":["10.99.0.6/24"],"ipam_mode":"dhcp"}}`
	n.must(n.PutPod(source))
	pod, call := n.attach("launcher6-target", "vm6", device)
	n.must(card.Pin(device, ""))
	result := n.cni(call)
	if result.Interfaces[1].Mac != "02:00:00:00:00:06" || len(result.IPs) != 1 || result.IPs[0].Address.String() != "10.99.0.6/24" {
		n.t.Errorf("the result is not the source's: %v", result)
	}
	if pf := n.pf(); !strings.Contains(pf, "02:00:00:00:00:06") {
		n.t.Errorf("no virtual function has the machine's MAC address: %s", pf)
	}
	n.mustBelongToVFIO(device)
	check := call
	check.Command = "CHECK"
	n.cni(check)
	n.must(card.Pin(device, ""))
	if _, err := n.CNI(n.t.Context(), 0, check); err == nil || !strings.Contains(err.Error(), "pinned") {
		n.t.Errorf("CHECK of a device that is not pinned: %v", err)
	}
	n.must(card.Pin(device, "vfio-pci"))
	n.del(pod, call)
	n.must(n.Delete("pod", source.Namespace, source.Name))
}

// testPodRefused has a pod without a virtual machine get a device that is for
// one.
func testPodRefused(n *node) {
	device := n.vfs[0]
	_, call := n.attach("plain", "", device)
	_, err := n.CNI(n.t.Context(), 0, call)
	var refusal *types.Error
	if !errors.As(err, &refusal) || !strings.Contains(refusal.Error(), "for virtual machines") {
		n.t.Errorf("ADD: %v", err)
	}
	n.mustBelongToVFIO(device)
}

// testPod moves the interface of a virtual function into a pod, and back.
func testPod(n *node) {
	device := n.vfs[1]
	n.must(card.Bind(device, "igbvf"))
	pod, call := n.attach("web", "", device)
	result := n.cni(call)
	if len(result.IPs) != 1 {
		n.t.Fatalf("addresses of the result: %v", result.IPs)
	}
	addr := result.IPs[0].Address
	in := func(args ...string) string {
		out, err := n.Lab.InNetns(n.t.Context(), "web", args[0], args[1:]...).CombinedOutput()
		if err != nil {
			n.t.Fatalf("%s in the pod: %v: %s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if show := in("ip", "addr", "show", "net1"); !strings.Contains(show, addr.String()) {
		n.t.Errorf("net1 of the pod has not %v: %s", &addr, show)
	}
	in("ping", "-c", "3", "-W", "5", n.Lab.Phys.Gateway.String())
	mac, err := net.ParseMAC(result.Interfaces[1].Mac)
	n.must(err)
	n.mustHavePort(pod, mac.String(), addr.IP.String())
	n.del(pod, call)
	if leases := n.leases(mac.String()); len(leases) > 0 {
		n.t.Errorf("leases of the server after DEL: %v", leases)
	}
	if links, err := n.Lab.Nodes[0].Links(); err != nil || !strings.Contains(strings.Join(links, " "), "eth") {
		n.t.Errorf("the interface is not back on the node: %v, %v", links, err)
	}
	n.must(card.Bind(device, "vfio-pci"))
}
