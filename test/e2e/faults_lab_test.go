//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

const faultVariable = "OVN_DHCP_IPAM_FAULT"

// TestFaults makes every ADD and DEL fail before and after every one of its side
// effects, by an error and by the end of the process. Nothing may be left, or the
// next DEL, or the next start of the daemon, has to remove it.
func TestFaults(t *testing.T) {
	newWorld(t, site.Options{}).faults()
}

// TestFaultsOfVM does the same with virtual machines' pods. What an ADD that fails
// has discovered is given back, and what a DEL takes away is not: it is the guest's.
func TestFaultsOfVM(t *testing.T) {
	w := newWorld(t, site.Options{})
	w.vms = true
	w.faults()
}

func (w *world) faults() {
	before := w.snapshot(0)
	var cases int
	moments := w.moments()
	for _, command := range []string{"ADD", "DEL"} {
		for _, kind := range []string{"error", "crash"} {
			for _, moment := range moments[command] {
				cases++
				w.t.Run(fmt.Sprintf("%s %s %s", command, kind, moment), func(t *testing.T) {
					in := *w
					in.t = t
					in.fault(command, kind, moment, fmt.Sprintf("web%d", cases), before)
				})
			}
		}
	}
	w.t.Logf("%d moments of an ADD and %d of a DEL, %d cases", len(moments["ADD"]), len(moments["DEL"]), cases)
	if len(moments["ADD"]) < 19 || len(moments["DEL"]) < 14 {
		w.t.Errorf("moments are missing: %q", moments)
	}
}

// TestFaultsOfNewerSandbox has the ADD of a pod's second sandbox fail, which by
// then may have taken over the lease of the first. When both are deleted, the
// lease is given back.
func TestFaultsOfNewerSandbox(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	moments := slices.DeleteFunc(w.moments()["ADD"], func(moment string) bool {
		return moment == "offer selected" // a lease that is taken over is confirmed, not offered
	})
	for i, moment := range moments {
		t.Run(moment, func(t *testing.T) {
			in := *w
			in.t = t
			in.restart("")
			pod, first := in.newPod(fmt.Sprintf("web%d", i), 0)
			calls := []site.Call{in.Attach("DEL", pod, in.lan, in.netns("newer-"+pod.Name)), in.Attach("DEL", pod, in.lan, first)}
			add := in.Attach("ADD", pod, in.lan, first)
			in.cni(0, add)
			in.restart("error " + moment)
			newer := calls[0]
			newer.Command = "ADD"
			if _, err := in.CNI(t.Context(), 0, newer); err == nil {
				t.Fatal("the ADD succeeded in spite of the fault")
			}
			for _, call := range calls {
				in.cni(0, call)
			}
			in.must(in.Delete("pod", pod.Namespace, pod.Name))
			// The keeper tries again after ten seconds what could not leave.
			in.eventually(45*time.Second, func() string {
				if l := in.lease(podnet.DeriveMAC("site", pod.Namespace, pod.Name, "default/lan").String()); l != nil {
					return fmt.Sprintf("lease %+v is left", *l)
				}
				return ""
			})
			delete(before, "records") // those of leases given back late go later
			in.nothingLeft(0, before)
		})
	}
}

// moments lists the moments of an ADD and of a DEL at which a fault can come.
func (w *world) moments() map[string][]string {
	w.t.Helper()
	w.restart("list")
	pod, netns := w.newPod("listed", 0)
	out := map[string][]string{}
	log := filepath.Join(w.Lab.Nodes[0].Dir, "node.log")
	seen := 0
	for _, command := range []string{"ADD", "DEL"} {
		w.cni(0, w.Attach(command, pod, w.lan, netns))
		data, err := os.ReadFile(log)
		w.must(err)
		for line := range strings.Lines(string(data[seen:])) {
			if moment, ok := strings.CutPrefix(strings.TrimSpace(line), "fault moment: "); ok && !slices.Contains(out[command], moment) {
				out[command] = append(out[command], moment)
			}
		}
		seen = len(data)
	}
	w.must(w.Delete("pod", pod.Namespace, pod.Name))
	return out
}

// restart restarts the node daemon with a fault, "" for none.
func (w *world) restart(fault string) {
	w.t.Helper()
	w.must(w.StopNode(0, syscall.SIGTERM))
	w.NodeEnv = []string{faultVariable + "=" + fault}
	w.must(w.StartNode(w.t.Context(), 0))
}

func (w *world) fault(command, kind, moment, name string, before map[string]string) {
	w.restart(kind + " " + moment)
	pod, netns := w.newPod(name, 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	if command == "DEL" {
		w.cni(0, call)
		call.Command = "DEL"
	}
	_, err := w.CNI(w.t.Context(), 0, call)
	succeeded := command == "DEL" // whether an ADD has
	// A record that can't be written does not keep a DEL from its work.
	tolerated := kind == "error" && strings.HasSuffix(moment, "undo: mark record")
	if (err == nil) != tolerated {
		w.t.Fatalf("the %s ended with %v", command, err)
	}
	switch {
	case tolerated:
	case kind == "crash":
		w.must(w.NodeEnded(w.t.Context(), 0))
		w.NodeEnv = nil
		w.must(w.StartNode(w.t.Context(), 0))
		if moment == "after do close record" || moment == "before undo: mark record" {
			// All was done, or nothing, but the runtime doesn't know which.
			succeeded = true
			call.Command = "DEL"
			w.cni(0, call)
		}
	case !strings.Contains(err.Error(), "injected fault "+moment):
		w.t.Errorf("the error does not tell of the fault: %v", err)
	case command == "DEL":
		w.cni(0, call)
	}
	w.nothingLeft(0, before)
	if w.vms && succeeded {
		w.leaseStays(pod)
	} else {
		w.noLease(pod)
	}
	if e, ok := w.entry(pod, "default/lan"); ok {
		w.t.Errorf("annotation entry %+v is left", e)
	}
	if links := w.in(netns, "ip", "-o", "link"); strings.Contains(links, "net1") {
		w.t.Errorf("interface is left: %s", links)
	}
	w.must(w.Delete("pod", pod.Namespace, pod.Name))
	w.must(w.Lab.DelNetns(netns))
}

// leaseStays checks that the DHCP server has a virtual machine's lease.
func (w *world) leaseStays(pod *corev1.Pod) {
	w.t.Helper()
	mac := podnet.DeriveVMMAC("site", pod.Namespace, pod.Name, "default/lan").String()
	if l := w.lease(mac); l == nil {
		w.t.Errorf("the lease of virtual machine %s was given back:\n%s", pod.Name, w.Lab.DHCP.Log())
	}
}

// noLease awaits that the DHCP server has no lease of a pod.
func (w *world) noLease(pod *corev1.Pod) {
	w.t.Helper()
	mac := podnet.DeriveMAC("site", pod.Namespace, pod.Name, "default/lan").String()
	if w.vms {
		mac = podnet.DeriveVMMAC("site", pod.Namespace, pod.Name, "default/lan").String()
	}
	w.eventually(2*time.Second, func() string {
		if l := w.lease(mac); l != nil {
			return fmt.Sprintf("lease %+v is left", *l)
		}
		return ""
	})
}
