//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// TestDeclined has the server offer an address that somebody on the network uses: a node
// that probes declines it, and gets another one.
func TestDeclined(t *testing.T) {
	const used = "10.1.192.77"
	hosts := filepath.Join(t.TempDir(), "hosts")
	mac := podnet.DeriveMAC("site", "default", "web", "default/lan").String()
	if err := os.WriteFile(hosts, []byte(mac+","+used+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, site.Options{NodeArgs: []string{"--probe"}, Lab: lab.Options{DNSMasqArgs: []string{"--dhcp-hostsfile=" + hosts}}})
	w.physAddr("add", netip.MustParsePrefix(used+"/32"))
	pod, netns := w.newPod("web", 0)
	call := w.Attach("ADD", pod, w.lan, netns)
	r := w.cni(0, call)
	if got := r.IPs[0].Address.IP.String(); r.Interfaces[1].Mac != mac || got == used {
		t.Errorf("address %s of %s", got, r.Interfaces[1].Mac)
	}
	if log := w.Lab.DHCP.Log(); strings.Count(log, "DHCPDECLINE(br0) "+used+" "+mac) != 1 {
		t.Errorf("the server's log:\n%s", log)
	}
	call.Command = "DEL"
	w.cni(0, call)
	w.noLease(pod)
}
