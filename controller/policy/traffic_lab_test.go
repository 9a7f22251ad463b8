// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package policy

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// TestDefaultDeny has pods that are denied everything get their leases.
func TestDefaultDeny(t *testing.T) {
	onEachRelease(t, func(t *testing.T, s site) {
		s.write([]nbdb.Rows{testNetwork.DefaultDeny("ns", Ingress), testNetwork.DefaultDeny("ns", Egress)})
		s.nbctl("--wait=hv", "sync")
		addresses := map[string]string{}
		for _, pod := range pods {
			addresses[pod] = s.acquire(pod, 5)
			if addresses[pod] == "" {
				t.Fatalf("%s has got no lease", pod)
			}
		}
		gateway := s.Phys.Gateway.String()
		if s.answers("pod1", gateway) || s.answers("pod1", addresses["pod2"]) {
			t.Error("a pod that is denied everything reaches others")
		}
		s.nbctl("--wait=hv", "--all", "destroy", "Port_Group")
		if !s.answers("pod1", gateway) || !s.answers("pod1", addresses["pod2"]) {
			t.Error("a pod that is denied nothing does not reach others")
		}
	})
}

// TestGuards has a pod that would be a DHCP server, and one that takes addresses
// of others.
func TestGuards(t *testing.T) {
	onEachRelease(t, func(t *testing.T, s site) {
		prefix := "/" + strconv.Itoa(s.Phys.Subnet.Bits())
		host := s.Phys.Subnet.Addr().As4()
		other := func(n byte) string {
			host[3] = n
			return netip.AddrFrom4(host).String()
		}
		pinned, free, leased := other(30), other(31), other(50)
		s.write([]nbdb.Rows{networkRows()["guard-dhcp-server"], testNetwork.OpenPortGuard()})
		s.fill(pinned)
		gateway := s.Phys.Gateway.String()
		address := func(do, address string) {
			s.run(s.InNetns(t.Context(), "pod2", "ip", "address", do, address+prefix, "dev", "eth0"))
		}

		address("add", pinned)
		if s.answers("pod2", gateway) {
			t.Error("a pod uses an address that is pinned to another")
		}
		address("del", pinned)
		address("add", free)
		if !s.answers("pod2", gateway) {
			t.Error("a pod can't use an address that nobody has")
		}

		if err := s.DHCP.Stop(); err != nil {
			t.Fatal(err)
		}
		s.serve("pod2", leased)
		if got := s.acquire("pod1", 2); got != "" {
			t.Errorf("a pod has given another the address %s", got)
		}
		s.nbctl("--wait=hv", "--all", "destroy", "Port_Group", "--", "acl-del", podnet.SwitchName(testNetwork.Name))
		if got := s.acquire("pod1", 5); got != leased {
			t.Errorf("without a guard a pod has got %q, want %s", got, leased)
		}
		address("del", free)
		address("add", pinned)
		if !s.answers("pod2", gateway) {
			t.Error("without a guard a pod can't use any address")
		}
	})
}

// TestMark has the packets marked of the pods whose addresses are in a set.
func TestMark(t *testing.T) {
	onEachRelease(t, func(t *testing.T, s site) {
		q, err := ParseQoS(object(t, qosYAML(`{dscp: 46, classifier: {to: [{ipBlock: {cidr: 0.0.0.0/0, except: [255.0.0.0/8]}}]}}`)))
		if err != nil {
			t.Fatal(err)
		}
		s.write([]nbdb.Rows{q.Compile(testNetwork).rows()})
		s.nbctl("--wait=hv", "sync")
		address := s.acquire("pod1", 5)
		s.acquire("pod2", 5)
		if tos := s.tos("pod1"); tos != "0x0" {
			t.Errorf("before its address is known a pod's packets have TOS %s", tos)
		}
		s.fill(address)
		const expedited = "0xb8" // 46 << 2
		if tos := s.tos("pod1"); tos != expedited {
			t.Errorf("a pod's packets have TOS %s, want %s", tos, expedited)
		}
		if tos := s.tos("pod2"); tos != "0x0" {
			t.Errorf("another pod's packets have TOS %s", tos)
		}
	})
}

// tos is the TOS that a packet of a pod has on the physical network.
func (s site) tos(pod string) string {
	s.t.Helper()
	ping := s.InNetns(s.t.Context(), pod, "ping", "-i0.1", s.Phys.Gateway.String())
	if err := ping.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer ping.Wait()
	defer ping.Process.Kill()
	out := s.run(s.InPhys(s.t.Context(), "timeout", "20", "tcpdump", "-nnv", "-c1", "-i", s.Phys.Bridge, "--immediate-mode", "icmp[0] == 8"))
	found := regexp.MustCompile(`tos (0x[0-9a-f]+)`).FindStringSubmatch(out)
	if found == nil {
		s.t.Fatalf("no TOS in %s", out)
	}
	return found[1]
}

// serve has a pod be a DHCP server that has one address.
func (s site) serve(pod, address string) {
	s.t.Helper()
	config := filepath.Join(s.Dir, "udhcpd.conf")
	text := fmt.Sprintf("interface eth0\nlease_file %[1]s.leases\npidfile %[1]s.pid\nstart %[2]s\nend %[2]s\noption subnet 255.255.255.0\n", config, address)
	for name, content := range map[string]string{config: text, config + ".leases": ""} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.InNetns(s.t.Context(), pod, "busybox", "udhcpd", "-f", "-a", "50", config).Start(); err != nil {
		s.t.Fatal(err)
	}
}

// acquire gets a pod an address, asking so many times, for a second each; "" for
// none.
func (s site) acquire(pod string, times int) string {
	s.t.Helper()
	script := filepath.Join(s.Dir, "udhcpc-"+pod)
	if err := os.WriteFile(script, []byte("#!/bin/sh\n[ $1 != bound ] || { ip address replace $ip/$mask dev $interface; echo $ip; }\n"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	out, err := s.InNetns(s.t.Context(), pod, "busybox", "udhcpc", "-i", "eth0", "-fnq",
		"-t"+strconv.Itoa(times), "-T1", "-A1", "-s", script).Output()
	if _, failed := err.(*exec.ExitError); failed {
		return ""
	}
	if err != nil {
		s.t.Fatal(err)
	}
	address := strings.TrimSpace(string(out))
	if _, err := netip.ParseAddr(address); err != nil {
		s.t.Fatal(err)
	}
	return address
}

// answers reports whether an address answers a pod.
func (s site) answers(pod, address string) bool {
	s.t.Helper()
	return s.InNetns(s.t.Context(), pod, "ping", "-c2", "-i0.2", "-W1", address).Run() == nil
}
