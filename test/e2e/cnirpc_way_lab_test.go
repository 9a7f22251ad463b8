//go:build lab

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// attached is what the daemon got for a pod.
type attached struct {
	conf  map[string]any
	netns string
	mac   string
	addr  net.IP
}

// attach adds a pod to a network.
func (h *host) attach(conf map[string]any, name string) attached {
	h.t.Helper()
	a := attached{conf: conf, netns: h.netns(name)}
	result, err := h.call("ADD", conf, a.netns)
	h.must(err)
	a.addr = result.IPs[0].Address.IP
	for _, i := range result.Interfaces {
		if i.Sandbox != "" {
			a.mac = i.Mac
		}
	}
	if h.lease(a.mac) == nil {
		h.t.Fatalf("the server has no lease for %s of %s", a.mac, name)
	}
	return a
}

// captureSent captures the first n RELEASEs that the host sends by one of its devices.
func (h *host) captureSent(n int, device string) func() string {
	h.t.Helper()
	in := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		return h.Lab.InNetns(ctx, "host", name, args...)
	}
	return h.captureReleases(n, in, "-e", "-i", device, "-Q", "out")
}

// wasReleased awaits that the server has a pod's lease no more, and checks that one of
// the captured frames is its RELEASE, as if the pod itself had sent it.
func (h *host) wasReleased(a attached, frames string) {
	h.t.Helper()
	h.eventually(5*time.Second, func() string {
		if h.lease(a.mac) != nil {
			return "the server still has the lease of " + a.netns
		}
		return ""
	})
	for frame := range strings.Lines(frames) {
		if strings.Contains(frame, " "+a.mac+" > ") && strings.Contains(frame, fmt.Sprintf(" %s.68 > %s.67: ", a.addr, h.Lab.Phys.Gateway)) {
			return
		}
	}
	h.t.Errorf("no RELEASE of %s by %s among:\n%s", a.addr, a.mac, frames)
}

// releases counts the RELEASEs that the server got from a pod.
func (h *host) releases(a attached) int {
	return strings.Count(h.Lab.DHCP.Log(), fmt.Sprintf(" DHCPRELEASE(%s) %s %s", h.Lab.Phys.Bridge, a.addr, a.mac))
}

// TestCNIDHCPGonePods has pods disappear while the daemon is down, which no DEL tells it.
// Each has one RELEASE, by the device that it was on.
func TestCNIDHCPGonePods(t *testing.T) {
	h := newHost(t)
	h.start()
	pods := map[string]attached{
		"eth0": h.attach(h.conf("macvlan", "eth0", nil), "on-master"),
		"cni0": h.attach(h.conf("bridge", "cni0", nil), "on-bridge"),
	}
	h.stop(syscall.SIGKILL)
	sent := map[string]func() string{}
	for device, pod := range pods {
		h.must(h.Lab.DelNetns(pod.netns))
		sent[device] = h.captureSent(1, device)
	}
	h.start()
	for device, pod := range pods {
		h.wasReleased(pod, sent[device]())
	}
	h.eventually(5*time.Second, func() string { return strings.Join(h.records(), " ") })
	// The runtime finds out at last. What the server answers afterwards came after any
	// RELEASE.
	for _, pod := range pods {
		_, err := h.call("DEL", pod.conf, pod.netns)
		h.must(err)
	}
	h.attach(h.conf("bridge", "cni0", nil), "next")
	for _, pod := range pods {
		if n := h.releases(pod); n != 1 {
			t.Errorf("the lease of %s was released %d times", pod.netns, n)
		}
	}
}

// TestCNIDHCPTwoOnABridge has two pods on a bridge, whose plugin removes their interfaces
// before it has their leases given back. That it is cni0 is what one's configuration says,
// and the plugin's default for the other.
func TestCNIDHCPTwoOnABridge(t *testing.T) {
	h := newHost(t)
	h.start()
	unnamed := h.conf("bridge", "cni0", nil)
	delete(unnamed, "bridge")
	pods := []attached{h.attach(h.conf("bridge", "cni0", nil), "named"), h.attach(unnamed, "unnamed")}
	sent := h.captureSent(len(pods), "cni0")
	for _, pod := range pods {
		_, err := h.call("DEL", pod.conf, pod.netns)
		h.must(err)
	}
	frames := sent()
	for _, pod := range pods {
		h.wasReleased(pod, frames)
	}
	h.noRecords()
}
