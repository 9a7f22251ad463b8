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
	if pf := n.run("ip", "link", "show", card.PF); !strings.Contains(pf, mac) {
		n.t.Errorf("no virtual function of %s has %s: %s", card.PF, mac, pf)
	}

	// The guest runs: nothing touches its device any more.
	use, err := card.Open(device)
	n.must(err)
	if again := n.cni(call); again.IPs[0].Address.String() != result.IPs[0].Address.String() {
		n.t.Errorf("repeated ADD: %v, first %v", again.IPs, result.IPs)
	}
	n.del(pod, call)
	n.must(use.Close())
	n.mustBelongToVFIO(device)
	if pf := n.run("ip", "link", "show", card.PF); strings.Contains(pf, mac) {
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
