//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// The lab's only virtual function, which no hardware has: test/vfio has a NIC's.
const (
	vfAddress = "0000:3b:10.2"
	pfAddress = "0000:3b:00.0"
	vfMAC     = "02:00:00:00:00:99"

	// representor tells the node daemon what stands for it.
	representor = "--representor=" + vfAddress + "=rep0"
)

// nic is a sysfs with one virtual function that has a NIC driver, and a veth pair on
// the node for its interface and the representor.
type nic struct {
	w     *world
	sysfs string
}

func newNIC(t *testing.T, nodeArgs ...string) *nic {
	n := &nic{sysfs: t.TempDir()}
	for _, dir := range []string{vfAddress + "/net/vf0", pfAddress} {
		n.must(t, os.MkdirAll(n.path(dir), 0o755))
	}
	for file, text := range map[string]string{"vendor": "0x8086\n", "device": "0x1889\n", "modalias": "pci:v00008086d00001889\n", "driver_override": "(null)\n"} {
		for _, pci := range []string{vfAddress, pfAddress} {
			n.must(t, os.WriteFile(n.path(pci, file), []byte(text), 0o644))
		}
	}
	for link, target := range map[string]string{
		n.path(vfAddress, "physfn"): "../" + pfAddress, n.path(pfAddress, "virtfn0"): "../" + vfAddress,
		n.path(vfAddress, "driver"): "../../drivers/iavf", n.path(pfAddress, "driver"): "../../drivers/ice",
		n.path(vfAddress, "iommu_group"): "../../../kernel/iommu_groups/7",
	} {
		n.must(t, os.Symlink(target, link))
	}
	n.w = newWorld(t, site.Options{NodeArgs: append(nodeArgs, "--sysfs", n.sysfs)})
	n.node("ip", "link", "add", "vf0", "mtu", "1400", "address", vfMAC, "type", "veth", "peer", "name", "rep0")
	return n
}

func (n *nic) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *nic) path(elem ...string) string {
	return filepath.Join(append([]string{n.sysfs, "bus/pci/devices"}, elem...)...)
}

// node runs a command on the node.
func (n *nic) node(name string, args ...string) string {
	n.w.t.Helper()
	out, err := n.w.Lab.Nodes[0].Command(n.w.t.Context(), name, args...).CombinedOutput()
	if err != nil {
		n.w.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// attach is the call for a pod with the virtual function.
func (n *nic) attach(pod *corev1.Pod, netns string) site.Call {
	return n.w.Attach("ADD", pod, n.w.lanWith(map[string]any{"deviceID": vfAddress}), netns)
}

// back checks that the interface is on the node as it was.
func (n *nic) back() {
	n.w.t.Helper()
	if got := n.node("ip", "-o", "link", "show", "vf0"); !strings.Contains(got, vfMAC) || !strings.Contains(got, "mtu 1400 ") {
		n.w.t.Errorf("the interface on the node: %s", got)
	}
}

// TestVF gives a pod the interface of a virtual function, and takes it back.
func TestVF(t *testing.T) {
	n := newNIC(t, representor)
	w := n.w
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	call := n.attach(pod, netns)
	r := w.cni(0, call)
	mac, addr := address(t, r)
	if r.Interfaces[0].Name != "rep0" || r.Interfaces[1].PciID != vfAddress {
		t.Errorf("interfaces %v", r.Interfaces)
	}
	if got := w.in(netns, "ip", "-o", "link", "show", "net1"); !strings.Contains(got, mac.String()) || !strings.Contains(got, "mtu 1500 ") {
		t.Errorf("the pod's interface: %s", got)
	}
	if got := w.in(netns, "ip", "-o", "-4", "addr", "show", "net1"); !strings.Contains(got, addr.String()) {
		t.Errorf("the pod's address: %s, want %s", got, addr)
	}
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	for key, want := range map[string]string{"vf-netdev-name": "vf0", "iface-id": "default.lan_default_web", "attached_mac": mac.String(), "ip_addresses": addr.String()} {
		if got := strings.Trim(w.vsctl(0, "get", "Interface", "rep0", "external_ids:"+key), "\""); got != want {
			t.Errorf("external_ids:%s of the representor: %q, want %q", key, got, want)
		}
	}
	if _, again := address(t, w.cni(0, call)); again != addr {
		t.Errorf("a repeated ADD gives %s", again)
	}
	call.Command = "DEL"
	w.cni(0, call)
	w.noLease(pod)
	w.must(w.Delete("pod", "default", "web"))
	w.nothingLeft(0, before)
	n.back()

	// What is wrong on the way is undone, and the device can be had again.
	w.must(w.Lab.DHCP.Stop())
	w.must(w.StopNode(0, 15))
	failing, failingNetns := w.newPod("failing", 0)
	w.NodeEnv = []string{faultVariable + "=error after do plug"}
	w.must(w.StartNode(t.Context(), 0))
	w.refused(0, n.attach(failing, failingNetns), 999, "after do plug")
	n.back()
	w.must(w.Lab.DHCP.Start(t.Context()))
	w.cni(0, n.attach(failing, failingNetns))
}

// TestVFByDeviceInfo has the device plugin tell of the representor.
func TestVFByDeviceInfo(t *testing.T) {
	n := newNIC(t)
	w := n.w
	pod, netns := w.newPod("web", 0)
	w.refused(0, n.attach(pod, netns), 7, "deviceID", vfAddress, "representor") // the sysfs doesn't tell
	info := "/var/run/k8s.cni.cncf.io/devinfo/cni/" + netns + ".json"
	network := w.lanWith(map[string]any{"deviceID": vfAddress, "runtimeConfig": map[string]any{"CNIDeviceInfoFile": info}})
	call := w.Attach("ADD", pod, network, netns)
	w.refused(0, call, 7, "representor") // there is no such file, which is allowed
	w.must(os.MkdirAll(filepath.Dir(info), 0o700))
	w.must(os.WriteFile(info, []byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"`+vfAddress+`","representor-device":"rep0"}}`), 0o644))
	if got := w.cni(0, call).Interfaces[0].Name; got != "rep0" {
		t.Errorf("host interface %s", got)
	}
	w.in(netns, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
}

// TestVFOfNewerPod has the device given to another pod before the DEL of the first one
// comes, which then leaves it alone. While the first one runs it keeps the device.
func TestVFOfNewerPod(t *testing.T) {
	n := newNIC(t, representor)
	w := n.w
	var calls []site.Call
	for i := range 2 {
		pod, netns := w.newPod(fmt.Sprintf("web%d", i), 0)
		calls = append(calls, n.attach(pod, netns))
	}
	w.cni(0, calls[0])
	w.refused(0, calls[1], 7, "deviceID", vfAddress, "pod default/web0 has it")
	w.in(calls[0].ContainerID, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String())
	ended, err := w.GetPod("default", "web0")
	w.must(err)
	ended.Status.Phase = corev1.PodSucceeded
	w.must(w.PutPod(ended))
	w.cni(0, calls[1])
	if got := w.in(calls[0].ContainerID, "ip", "-o", "link"); strings.Contains(got, "net1") {
		t.Errorf("the first pod still has the device: %s", got)
	}
	ping := func() { w.in(calls[1].ContainerID, "ping", "-c1", "-W2", w.Lab.Phys.Gateway.String()) }
	ping()
	calls[0].Command, calls[1].Command = "DEL", "DEL"
	w.cni(0, calls[0])
	w.cni(0, calls[0])
	ping()
	w.cni(0, calls[1])
	n.back()
	w.cni(0, calls[0])
	n.back()
}

// TestVFOfVM gives the interface to a virtual machine's pod: without an address.
func TestVFOfVM(t *testing.T) {
	n := newNIC(t, representor)
	w := n.w
	w.vms = true
	pod, netns := w.newPod("vm1", 0)
	call := n.attach(pod, netns)
	mac, addr := address(t, w.cni(0, call))
	if got := w.in(netns, "ip", "-o", "addr", "show", "net1"); got != "" {
		t.Errorf("the pod's interface has an address: %s", got)
	}
	if l := w.lease(mac.String()); l == nil || l.Addr != addr.Addr() {
		t.Errorf("lease %+v, want %s", l, addr)
	}
	call.Command = "DEL"
	w.cni(0, call)
	w.leaseStays(pod)
	n.back()
}

// TestVFInUse has a virtual machine's pod get a device that another plugin's guest has
// open, and one of which that can't be seen. It is told before anything is touched.
func TestVFInUse(t *testing.T) {
	proc := t.TempDir()
	n := newNIC(t, representor, "--proc", proc)
	w := n.w
	before := w.snapshot(0)
	w.must(os.Remove(n.path(vfAddress, "driver")))
	w.must(os.Symlink("../../drivers/vfio-pci", n.path(vfAddress, "driver")))
	for _, dir := range []string{"1/ns", "4711/fd"} {
		w.must(os.MkdirAll(filepath.Join(proc, dir), 0o755))
	}
	w.must(os.Symlink("/dev/vfio/7", filepath.Join(proc, "4711/fd/3")))
	pids := filepath.Join(proc, "1/ns/pid")
	// The machine's first pod, and one that it migrates to.
	for i := range 2 {
		pod := w.launcher(fmt.Sprintf("launcher%d", i), "vm1", 0, time.Unix(int64(i), 0))
		call := n.attach(pod, w.netns(pod.Name))
		w.must(os.Symlink("pid:[4026531836]", pids))
		w.refused(0, call, 7, "deviceID", vfAddress, "open in process 4711")
		w.must(os.Remove(pids))
		w.must(os.Symlink("pid:[4026532177]", pids))
		w.refused(0, call, 7, "deviceID", vfAddress, "can't be seen")
		w.must(os.Remove(pids))
		if _, ok := w.entry(pod, "default/lan"); ok {
			t.Errorf("%s has an entry in its annotation", pod.Name)
		}
		w.nothingLeft(0, before)
		if i == 0 {
			networks, err := podnet.Networks{}.With("default/lan", podnet.Entry{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}})
			w.must(err)
			pod.Annotations[podnet.Annotation] = networks.String()
			w.must(w.PutPod(pod))
			delete(before, "NB ports") // the controller makes one of that
		}
	}
}

// TestVFRefused has devices that can't be given to a pod.
func TestVFRefused(t *testing.T) {
	n := newNIC(t, representor)
	w := n.w
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	driver := n.path(vfAddress, "driver")
	for _, test := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"passed to a guest that there is not", func() {
			w.must(os.Remove(driver))
			w.must(os.Symlink("../../drivers/vfio-pci", driver))
		}, []string{"vfio-pci", "virtual machines"}},
		{"no driver", func() { w.must(os.Remove(driver)) }, []string{"no driver"}},
		{"no representor", func() {
			w.must(os.Symlink("../../drivers/iavf", driver))
			n.node("ip", "link", "set", "rep0", "name", "other")
		}, []string{"representor", "rep0"}},
		{"no virtual function", func() { w.must(os.Remove(n.path(vfAddress, "physfn"))) }, []string{"not a virtual function"}},
		{"no device", func() { w.must(os.RemoveAll(n.path(vfAddress))) }, []string{"no such file"}},
	} {
		test.change()
		t.Run(test.name, func(t *testing.T) {
			in := *w
			in.t = t
			in.refused(0, n.attach(pod, netns), 7, append(test.want, "deviceID", vfAddress)...)
		})
	}
	n.node("ip", "link", "set", "other", "name", "rep0")
	w.nothingLeft(0, before)
}
