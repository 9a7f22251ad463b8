//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

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

// TestReleaseByBridge has a pod's network namespace go before its DEL: the RELEASE leaves
// by the bridge of the physical network, with the VLAN's tag.
func TestReleaseByBridge(t *testing.T) {
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
	w.noReleasePorts()
}

// TestReleaseLater has the server out of reach when a pod goes, which holds up nothing,
// and the daemon end before it can be reached again. Then the lease is given back.
func TestReleaseLater(t *testing.T) {
	w := newWorld(t, site.Options{})
	before := w.snapshot(0)
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	mac, addr := address(t, w.cni(0, call))
	w.uplink("down")
	call.Command = "DEL"
	w.cni(0, call)
	w.must(w.Delete("pod", "default", "web"))
	w.must(w.Lab.DelNetns(netns))
	if strings.Contains(w.Lab.DHCP.Log(), "DHCPRELEASE") || w.lease(mac.String()) == nil {
		t.Fatalf("the lease was given back though the server could not be reached:\n%s", w.Lab.DHCP.Log())
	}
	w.must(w.StopNode(0, syscall.SIGKILL))
	w.uplink("up")
	w.must(w.StartNode(t.Context(), 0))
	w.awaitLog("DHCPRELEASE(br0) "+addr.Addr().String(), 1)
	w.noLease(pod)
	w.eventually(5*time.Second, func() string {
		if kept := w.records("leases"); len(kept) > 0 {
			return fmt.Sprintf("the daemon still has leases of %v", kept)
		}
		return ""
	})
	// The attachment's record is looked at every half minute, and at a start.
	w.must(w.StopNode(0, syscall.SIGTERM))
	w.must(w.StartNode(t.Context(), 0))
	w.nothingLeft(0, before)
	w.noReleasePorts()
}

// TestSuccessorKeepsLease has a pod made anew on another node while the former
// one's lease is still to be given back: it is not, since it is the new one's.
func TestSuccessorKeepsLease(t *testing.T) {
	w := newWorld(t, site.Options{Lab: lab.Options{Nodes: 2}})
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	mac := w.cni(0, call).Interfaces[1].Mac
	// The first node is cut off, and its pod with it.
	w.uplink("down")
	call.Command = "DEL"
	w.cni(0, call)
	w.must(w.Delete("pod", "default", "web"))
	successor := w.Pod("default", "web", 1, "uid-successor")
	w.must(w.PutPod(successor))
	w.cni(1, w.Attach("ADD", successor, w.lan, w.netns("successor")))
	w.uplink("up")
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

// uplink sets the way of node 0 to the physical network up or down.
func (w *world) uplink(state string) {
	w.t.Helper()
	out, err := w.Lab.Nodes[0].Command(w.t.Context(), "ip", "link", "set", "phys0", state).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

// TestSandboxGone has the network namespace of a pod go without a DEL, while the node
// daemon is down. All goes that its ADD made, and the lease is given back. Another pod
// keeps what it has.
func TestSandboxGone(t *testing.T) {
	w := newWorld(t, site.Options{})
	stays, home := w.newPod("stays", 0)
	_, addr := address(t, w.cni(0, w.Attach("ADD", stays, w.lan, home)))
	before := w.snapshot(0)
	gone, netns := w.newPod("gone", 0)
	w.cni(0, w.Attach("ADD", gone, w.lan, netns))
	w.must(w.StopNode(0, syscall.SIGTERM))
	w.must(w.Lab.DelNetns(netns))
	w.nothingLeft(0, map[string]string{"links": before["links"]}) // the kernel takes its time
	w.must(w.StartNode(t.Context(), 0))
	w.nothingLeft(0, before)
	w.noReleasePorts()
	w.noLease(gone)
	if e, ok := w.entry(gone, "default/lan"); ok {
		t.Errorf("annotation entry %+v is left", e)
	}
	w.has(stays, home, addr)
}

// TestReleasePortLeft has an internal port on the bridge that a former daemon has made
// for a RELEASE and not removed. The next one removes it, and no other port.
func TestReleasePortLeft(t *testing.T) {
	w := newWorld(t, site.Options{})
	w.must(w.StopNode(0, syscall.SIGKILL))
	w.vsctl(0, "add-port", "br-ex", "others", "--", "set", "Interface", "others", "type=internal", "external_ids:purpose=release")
	before := w.snapshot(0)
	w.vsctl(0, "add-port", "br-ex", "release01234567", "--", "set", "Interface", "release01234567", "type=internal", "external_ids:ovn-dhcp-ipam/purpose=release")
	w.must(w.StartNode(t.Context(), 0))
	w.nothingLeft(0, before)
	w.noReleasePorts()
	if ports := w.vsctl(0, "list-ports", "br-ex"); !strings.Contains(ports, "others") {
		t.Errorf("another's port was removed, there are: %s", ports)
	}
}

// noReleasePorts checks that no internal port of node 0 is left that was made for a
// RELEASE.
func (w *world) noReleasePorts() {
	w.t.Helper()
	if got := w.vsctl(0, "--bare", "--columns=name", "find", "Interface", "type=internal"); strings.Contains(got, "release") {
		w.t.Errorf("internal ports are left: %s", got)
	}
}
