//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e shows the product at work on real parts: OVN, Open vSwitch and a
// DHCP server.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

func TestMain(m *testing.M) {
	// The race detector would have every process wait for a second at its end.
	if err := os.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	lab.Main(m)
}

// binaries builds the commands once for all tests. Faults are injected where
// the environment says so.
var binaries = sync.OnceValues(func() (string, error) {
	bin, err := os.MkdirTemp("", "bin")
	if err != nil {
		return "", err
	}
	return bin, site.Build(context.Background(), bin, "-race", "-tags", "faultinjection")
})

// world is a site for one test.
type world struct {
	*site.Site
	t   *testing.T
	lan site.Network
	// vms has newPod make pods of virtual machines, each of its pod's name.
	vms bool
	// probed and marks are how many probes there were, and markers of them.
	probed, marks uint16
}

func newWorld(t *testing.T, o site.Options) *world {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	o.Bin, o.RBAC = bin, "../../deploy/rbac.yaml"
	s, err := site.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Site: s, t: t, lan: s.LAN()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	w.must(s.PutNetwork(w.lan))
	w.eventually(10*time.Second, func() string {
		if w.nbctl("--bare", "--columns=name", "find", "Logical_Switch", "name=lan_ovn_localnet_switch") == "" {
			return "the controller has not made the network's switch"
		}
		return ""
	})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually awaits a condition, which returns what is still missing.
func (w *world) eventually(within time.Duration, missing func() string) {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(within)
	for {
		why := missing()
		if why == "" {
			return
		}
		select {
		case <-deadline:
			w.t.Fatalf("after %v: %s", within, why)
		case <-tick.C:
		}
	}
}

// newPod puts a pod and makes its network namespace.
func (w *world) newPod(name string, node int) (*corev1.Pod, string) {
	w.t.Helper()
	pod := w.Pod("default", name, node, "uid-"+name)
	if w.vms {
		pod.Labels = map[string]string{"vm.kubevirt.io/name": name}
	}
	w.must(w.PutPod(pod))
	return pod, w.netns("sandbox-" + name)
}

// lanWith is the network with some of its configuration changed.
func (w *world) lanWith(changes map[string]any) site.Network {
	n := w.lan
	n.Config = maps.Clone(n.Config)
	maps.Copy(n.Config, changes)
	return n
}

func (w *world) netns(name string) string {
	w.t.Helper()
	_, err := w.Lab.AddNetns(name)
	w.must(err)
	return name
}

func (w *world) cni(node int, c site.Call) *types100.Result {
	w.t.Helper()
	r, err := w.CNI(w.t.Context(), node, c)
	if err != nil {
		w.t.Fatalf("%s: %v", c.Command, err)
	}
	return r
}

// refused makes a call that has to fail, and checks the error's code and text.
func (w *world) refused(node int, c site.Call, code uint, texts ...string) {
	w.t.Helper()
	_, err := w.CNI(w.t.Context(), node, c)
	var cniError *types.Error
	if !errors.As(err, &cniError) {
		w.t.Fatalf("got %v, want a CNI error", err)
	}
	if cniError.Code != code {
		w.t.Errorf("CNI error code %d, want %d: %v", cniError.Code, code, err)
	}
	for _, text := range texts {
		if !strings.Contains(cniError.Error(), text) {
			w.t.Errorf("error %q does not contain %q", cniError.Error(), text)
		}
	}
}

func (w *world) nbctl(args ...string) string {
	w.t.Helper()
	out, err := w.Lab.Nbctl(w.t.Context(), args...)
	w.must(err)
	return strings.TrimSpace(out)
}

func (w *world) vsctl(node int, args ...string) string {
	w.t.Helper()
	out, err := w.Lab.Nodes[node].Vsctl(w.t.Context(), args...)
	w.must(err)
	return strings.TrimSpace(out)
}

// in runs a command in a pod's network namespace.
func (w *world) in(netns, name string, args ...string) string {
	w.t.Helper()
	out, err := w.Lab.InNetns(w.t.Context(), netns, name, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s %v in %s: %v: %s", name, args, netns, err, out)
	}
	return strings.TrimSpace(string(out))
}

// physAddr adds an address to the physical network's bridge, or removes it ("del").
func (w *world) physAddr(verb string, addr netip.Prefix) {
	w.t.Helper()
	if out, err := w.Lab.InPhys(w.t.Context(), "ip", "addr", verb, addr.String(), "dev", w.Lab.Phys.Bridge).CombinedOutput(); err != nil {
		w.t.Fatalf("%s %s: %v: %s", verb, addr, err, out)
	}
}

// events are the Events on a pod of the namespace default, as the API has them.
func (w *world) events(pod *corev1.Pod) (string, error) {
	data, err := os.ReadFile(filepath.Join(w.Objects, "events", "pod.default."+pod.Name+".events.json"))
	return string(data), err
}

// told awaits an Event on a pod.
func (w *world) told(pod *corev1.Pod, within time.Duration, reason, text string) {
	w.t.Helper()
	w.eventually(within, func() string {
		events, err := w.events(pod)
		for event := range strings.SplitSeq(events, `"kind": "Event"`) {
			if strings.Contains(event, reason) && strings.Contains(event, text) {
				return ""
			}
		}
		return fmt.Sprintf("no event %s with %q: %s (%v)", reason, text, events, err)
	})
}

func (w *world) lease(mac string) *lab.DHCPLease {
	w.t.Helper()
	leases, err := w.Lab.DHCP.Leases()
	w.must(err)
	for _, l := range leases {
		if l.MAC.String() == mac {
			return &l
		}
	}
	return nil
}

func (w *world) entry(pod *corev1.Pod, key string) (podnet.Entry, bool) {
	w.t.Helper()
	now, err := w.GetPod(pod.Namespace, pod.Name)
	w.must(err)
	networks, err := podnet.ParseNetworks(now.Annotations[podnet.Annotation])
	w.must(err)
	e, ok, err := networks.Entry(key)
	w.must(err)
	return e, ok
}

// snapshot is everything that an ADD could leave behind on a node and in NB.
func (w *world) snapshot(node int) map[string]string {
	w.t.Helper()
	links, err := w.Lab.Nodes[node].Links()
	w.must(err)
	records, err := filepath.Glob(filepath.Join(w.StateDir(node), "*", "*"))
	w.must(err)
	ports := strings.Fields(w.vsctl(node, "list-ports", "br-int"))
	// ovn-controller joins br-int to the physical network when it first needs to.
	ports = slices.DeleteFunc(ports, func(name string) bool { return strings.HasPrefix(name, "patch-") })
	return map[string]string{
		"links":     strings.Join(links, " "),
		"OVS ports": strings.Join(ports, " "),
		"records":   strings.Join(records, " "),
		"NB ports":  w.nbctl("--bare", "--columns=name", "list", "Logical_Switch_Port"),
	}
}

// nothingLeft awaits that a node is as it was.
func (w *world) nothingLeft(node int, before map[string]string) {
	w.t.Helper()
	w.eventually(5*time.Second, func() string {
		now := w.snapshot(node)
		for what, was := range before {
			if now[what] != was {
				return fmt.Sprintf("%s: %q, before: %q", what, now[what], was)
			}
		}
		return ""
	})
}
