// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build guest

// Package attach tests the product on virtual functions: the node daemon and
// the controller, with a real device, OVN and DHCP server.
package attach

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/vfio/card"
)

const (
	// nadKey is the key of the network's entries in the pods' annotations.
	nadKey = "default/lan"
	// faultVariable tells the node daemon where to end, if it is built for that.
	faultVariable = "OVN_DHCP_IPAM_FAULT"
)

func TestMain(m *testing.M) { lab.Main(m) }

// A node is a site whose only node is the machine: the network namespace with
// the card is the node's. The card has no embedded switch whose ports could
// stand for its virtual functions; in their place the NIC at the other end of
// the wire is joined to the bridge.
type node struct {
	*site.Site
	t   *testing.T
	vfs []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	vfs, err := card.VFs()
	if err != nil {
		t.Fatal(err)
	}
	o := site.Options{Bin: "/product", Lab: lab.Options{NodeNetns: card.Netns}, NodeArgs: []string{"--proc", card.Proc}}
	for _, vf := range vfs {
		o.NodeArgs = append(o.NodeArgs, "--representor", vf+"="+card.Far)
	}
	s, err := site.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Site: s, t: t, vfs: vfs}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	n.must(s.PutNetwork(s.LAN()))
	n.eventually(func() string {
		if n.nbctl("--bare", "--columns=name", "find", "Logical_Switch", "name=lan_ovn_localnet_switch") == "" {
			return "the controller has not made the network's switch"
		}
		return ""
	})
	return n
}

// forTest is the node for a part of the test.
func (n *node) forTest(t *testing.T) *node {
	in := *n
	in.t = t
	return &in
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// eventually awaits a condition, which returns what is still missing.
func (n *node) eventually(missing func() string) {
	n.t.Helper()
	const within = 30 * time.Second
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for why := missing(); why != ""; why = missing() {
		select {
		case <-deadline:
			n.t.Fatalf("after %v: %s", within, why)
		case <-tick.C:
		}
	}
}

func (n *node) nbctl(args ...string) string {
	n.t.Helper()
	out, err := n.Lab.Nbctl(n.t.Context(), args...)
	n.must(err)
	return strings.TrimSpace(out)
}

// run runs a command in the node.
func (n *node) run(args ...string) string {
	n.t.Helper()
	out, err := n.Lab.Nodes[0].Command(n.t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// externalID reads what Open vSwitch has been told of the representor.
func (n *node) externalID(key string) string {
	n.t.Helper()
	out, err := n.Lab.Nodes[0].Vsctl(n.t.Context(), "get", "Interface", card.Far, "external_ids:"+key)
	n.must(err)
	return strings.Trim(out, `"`)
}

// attach is the ADD of a pod's attachment that is made of a device. A vm is the
// name of the virtual machine in the pod, "" if there is none.
func (n *node) attach(name, vm, device string) (*corev1.Pod, site.Call) {
	n.t.Helper()
	pod := n.Pod("default", name, 0, "uid-"+name)
	if vm != "" {
		pod.Labels = map[string]string{"kubevirt.io": "virt-launcher"}
		pod.Annotations = map[string]string{"kubevirt.io/domain": vm}
	}
	n.must(n.PutPod(pod))
	_, err := n.Lab.AddNetns(name)
	n.must(err)
	// Who calls the plugin adds the device to the network's configuration.
	network := n.LAN()
	network.Config = maps.Clone(network.Config)
	network.Config["deviceID"] = device
	return pod, n.Attach("ADD", pod, network, name)
}

func (n *node) cni(c site.Call) *types100.Result {
	n.t.Helper()
	r, err := n.CNI(n.t.Context(), 0, c)
	if err != nil {
		n.t.Fatalf("%s: %v", c.Command, err)
	}
	return r
}

// del is a successful DEL, after which the representor is free.
func (n *node) del(pod *corev1.Pod, c site.Call) {
	n.t.Helper()
	c.Command = "DEL"
	n.cni(c)
	if ports := n.run("ovs-vsctl", "list-ports", "br-int"); strings.Contains(ports, card.Far) {
		n.t.Errorf("after DEL br-int has the ports %q", ports)
	}
	n.must(n.Delete("pod", pod.Namespace, pod.Name))
}

func (n *node) entry(pod *corev1.Pod) podnet.Entry {
	n.t.Helper()
	now, err := n.GetPod(pod.Namespace, pod.Name)
	n.must(err)
	networks, err := podnet.ParseNetworks(now.Annotations[podnet.Annotation])
	n.must(err)
	e, ok, err := networks.Entry(nadKey)
	n.must(err)
	if !ok {
		n.t.Fatalf("pod %s has no entry for %s", pod.Name, nadKey)
	}
	return e
}

// leases are the DHCP server's leases for a MAC address.
func (n *node) leases(mac string) []lab.DHCPLease {
	n.t.Helper()
	all, err := n.Lab.DHCP.Leases()
	n.must(err)
	var leases []lab.DHCPLease
	for _, l := range all {
		if l.MAC.String() == mac {
			leases = append(leases, l)
		}
	}
	return leases
}

// pf is what the physical function has of its virtual ones.
func (n *node) pf() string {
	n.t.Helper()
	return n.run("ip", "link", "show", card.PF)
}

// nothingLeft awaits that nothing is left of an attachment that did not come about.
func (n *node) nothingLeft(pod *corev1.Pod, mac, device string) {
	n.t.Helper()
	n.eventually(func() string {
		ports := n.run("ovs-vsctl", "list-ports", "br-int")
		records, err := filepath.Glob(filepath.Join(n.StateDir(0), "*", "*"))
		n.must(err)
		now, err := n.GetPod(pod.Namespace, pod.Name)
		n.must(err)
		leases, pf := n.leases(mac), n.pf()
		switch {
		case strings.Contains(ports, card.Far):
			return "br-int has the ports " + ports
		case len(records) > 0:
			return fmt.Sprintf("there are the records %q", records)
		case now.Annotations[podnet.Annotation] != "":
			return "the pod's annotation is " + now.Annotations[podnet.Annotation]
		case len(leases) > 0:
			return fmt.Sprintf("the server has the leases %v", leases)
		case strings.Contains(pf, mac):
			return "a virtual function has the guest's MAC address: " + pf
		}
		return ""
	})
	n.mustBelongToVFIO(device)
}

// restart starts the daemon anew, after it was killed, or ended by a fault.
func (n *node) restart(fault string) {
	n.t.Helper()
	n.must(n.StopNode(0, syscall.SIGKILL))
	n.NodeEnv = []string{faultVariable + "=" + fault}
	n.must(n.StartNode(n.t.Context(), 0))
}

// mustBelongToVFIO checks that the device is vfio-pci's for good, and opens it as
// its virtual machine does.
func (n *node) mustBelongToVFIO(device string) {
	n.t.Helper()
	override, err := card.Override(device)
	n.must(err)
	if driver := card.Driver(device); driver != "vfio-pci" || override != "vfio-pci" {
		n.t.Errorf("device %s has driver %q, override %q", device, driver, override)
	}
	use, err := card.Open(device)
	n.must(err)
	n.must(use.Close())
}

// mustHavePort awaits the logical port of a pod with an address.
func (n *node) mustHavePort(pod *corev1.Pod, mac, addr string) {
	n.t.Helper()
	port := podnet.PortName(nadKey, pod.Namespace, pod.Name)
	n.eventually(func() string {
		if got, want := n.nbctl("lsp-get-addresses", port), mac+" "+addr; got != want {
			return fmt.Sprintf("addresses of %s: %q, want %q", port, got, want)
		}
		return ""
	})
	if got := n.nbctl("get", "Logical_Switch_Port", port, "up"); got != "true" {
		n.t.Errorf("up of %s: %s", port, got)
	}
}
