//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// TestFrozenLeader freezes the controller that leads until another one leads.
// When it wakes up, there is something that it would put right, and nobody else
// who could: nothing may be written.
func TestFrozenLeader(t *testing.T) {
	w := newKubeWorld(t, site.Options{ControllerArgs: []string{"--leader-elect-lease-duration", "3s"}})
	pod, netns := w.newPod("web", 0)
	w.cni(0, w.Attach("ADD", pod, w.lan, netns))
	const port = "default.lan_default_web"
	first := w.leader()
	w.must(w.StartController())

	w.must(w.SignalController(0, syscall.SIGSTOP))
	w.eventually(20*time.Second, func() string {
		if leader := w.leader(); leader == first || leader == "" {
			return "nobody else leads"
		}
		return ""
	})
	// The second one has the fence when it has written.
	w.nbctl("lsp-set-addresses", port, "02:00:00:00:00:09")
	w.repaired(port)
	w.must(w.SignalController(1, syscall.SIGSTOP))
	w.nbctl("lsp-set-addresses", port, "02:00:00:00:00:09")
	w.nbctl("lsp-del", "lan_ovn_localnet_port")
	before := w.nbctl("list", "Logical_Switch") + w.nbctl("list", "Logical_Switch_Port") + w.nbctl("list", "Address_Set")

	w.must(w.SignalController(0, syscall.SIGCONT))
	w.must(w.ControllerEnded(t.Context(), 0))
	if after := w.nbctl("list", "Logical_Switch") + w.nbctl("list", "Logical_Switch_Port") + w.nbctl("list", "Address_Set"); after != before {
		t.Errorf("the former leader has written:\n%s\nbefore:\n%s", after, before)
	}
	w.must(w.StopController(1, syscall.SIGKILL))
	w.must(w.StartController())
	w.repaired(port)
}

// leader is who holds the controllers' Lease.
func (w kubeWorld) leader() string {
	w.t.Helper()
	lease, err := w.api.Client.CoordinationV1().Leases("ovn-dhcp-ipam").Get(w.t.Context(), "ovn-dhcp-ipam-controller", metav1.GetOptions{})
	w.must(err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// repaired awaits that a port has its lease's address again.
func (w *world) repaired(port string) {
	w.t.Helper()
	w.eventually(20*time.Second, func() string {
		if got := w.nbctl("lsp-get-addresses", port); !strings.Contains(got, " 10.") {
			return fmt.Sprintf("addresses of %s: %q", port, got)
		}
		return ""
	})
}

// TestNBLeaderChanges has a cluster of three northbound servers change its
// leader three times under a hundred ADDs.
func TestNBLeaderChanges(t *testing.T) {
	const pods, workers, changes = 100, 4, 3
	w := newWorld(t, site.Options{Lab: lab.Options{NBServers: 3}})
	var mu sync.Mutex
	addresses := map[string]string{} // by port
	work := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range work {
				name := fmt.Sprintf("web%d", i)
				pod := w.Pod("default", name, 0, "uid-"+name)
				err := w.PutPod(pod)
				if err == nil {
					_, err = w.Lab.AddNetns(name)
				}
				if err != nil {
					t.Error(err)
					continue
				}
				r, err := w.CNI(t.Context(), 0, w.Attach("ADD", pod, w.lan, name))
				if err != nil {
					t.Errorf("ADD of %s: %v", name, err)
					continue
				}
				mu.Lock()
				addresses["default.lan_default_"+name] = r.Interfaces[1].Mac + " " + r.IPs[0].Address.IP.String()
				mu.Unlock()
			}
		})
	}
	for i := range pods {
		if i%(pods/(changes+1)) == 0 && i > 0 {
			leader, err := w.Lab.MoveNBLeader(t.Context())
			w.must(err)
			t.Logf("leader %d after %d ADDs", leader, i)
		}
		work <- i
	}
	close(work)
	wg.Wait()
	if len(addresses) != pods {
		t.Fatalf("%d of %d ADDs succeeded", len(addresses), pods)
	}
	w.eventually(10*time.Second, func() string {
		ports := strings.Fields(w.nbctl("--bare", "--columns=name", "list", "Logical_Switch_Port"))
		if len(ports) != pods+1 { // and the localnet port
			return fmt.Sprintf("%d ports", len(ports))
		}
		rows := w.nbctl("--no-headings", "--format=csv", "--data=bare", "--columns=name,addresses", "list", "Logical_Switch_Port")
		for port, want := range addresses {
			if !strings.Contains(rows, port+","+want) {
				return fmt.Sprintf("%s does not have %s", port, want)
			}
		}
		return ""
	})
	seen := map[string]bool{}
	for port, a := range addresses {
		ip := net.ParseIP(strings.Fields(a)[1]).String()
		if seen[ip] {
			t.Errorf("%s has an address that another port has: %s", port, ip)
		}
		seen[ip] = true
	}
}
