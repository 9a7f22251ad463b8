// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/packet"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/objects"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// metricsAddress is where controllers serve their metrics. Every test binary has a
// network namespace of its own.
const metricsAddress = "127.0.0.1:9402"

// class is a site on whose network OVN learns the addresses of guests from ARP.
type class struct {
	*world
	objects *objects.Dir
	// outside is the machine on the physical network that is gateway and DHCP server.
	outside *station
	// uplinks are where each node meets the physical network.
	uplinks []*station
	// learner is the learner's MAC address.
	learner net.HardwareAddr
	marked  int // how many marker frames there were
}

func newClass(t *testing.T, o lab.Options) *class {
	t.Helper()
	c := &class{world: newWorld(t, site.Options{Lab: o, ControllerArgs: []string{"--metrics-bind-address", metricsAddress}})}
	c.lan = c.lanWith(map[string]any{"learn": podnet.LearnAll})
	c.must(c.PutNetwork(c.lan))
	var err error
	c.objects, err = objects.Open(objects.Config{Path: c.Objects, Log: slog.New(slog.DiscardHandler)})
	c.must(err)
	port := podnet.LearnerPortName("lan")
	c.eventually(10*time.Second, func() string {
		return cmp.Diff(port, c.nbctl("--bare", "--columns=name", "find", "Logical_Router_Port", "name="+port))
	})
	c.learner, err = net.ParseMAC(strings.Trim(c.nbctl("get", "Logical_Router_Port", port, "mac"), `"`))
	c.must(err)
	c.outside = c.stationIn(c.Lab.PhysNetns(), c.Lab.Phys.Bridge, nil, c.Lab.Phys.Gateway)
	c.outside.mac = c.outside.conn.LocalAddr().(*packet.Addr).HardwareAddr
	for _, n := range c.Lab.Nodes {
		c.uplinks = append(c.uplinks, c.stationIn(c.Lab.PhysNetns(), n.Name, nil, netip.Addr{}))
	}
	return c
}

// machine is a virtual machine whose guest does what the test has it do: it is on,
// with no DHCP client.
type machine struct {
	*station
	pod   *corev1.Pod
	netns string // the guest's
	port  string // OVN's name of it
	bits  int    // of the subnet
}

func (c *class) machine(name string, node int) *machine {
	c.t.Helper()
	lan := c.lan
	c.lan = c.lanWith(map[string]any{"learn": podnet.LearnOff}) // of the node daemon, in whose place is the test
	v := c.newVM(name, node)
	c.lan = lan
	g, err := c.Lab.AddGuest(c.t.Context(), v.netns, "net1", v.mac, name)
	c.must(err)
	c.in(g.Netns, "ip", "link", "set", "eth0", "up")
	m := &machine{c.station(g.Netns, "eth0", v.mac, v.addr.Addr()), v.pod, g.Netns, podnet.PortName("default/lan", "default", v.pod.Name), v.addr.Bits()}
	c.has(m, v.addr.Addr(), false)
	return m
}

// has awaits that OVN and the annotation have this address for a machine, and
// whether it is pinned to it.
func (c *class) has(m *machine, addr netip.Addr, pinned bool) {
	c.t.Helper()
	c.eventually(15*time.Second, func() string { return c.differs(m, addr, pinned) })
}

func (c *class) differs(m *machine, addr netip.Addr, pinned bool) string {
	c.t.Helper()
	address, state := m.mac.String()+" "+addr.String(), podnet.StateOpen
	want := []string{address, m.mac.String()}
	if pinned {
		want[1], state = address, podnet.StateBound
	}
	got := []string{c.nbctl("lsp-get-addresses", m.port), c.nbctl("lsp-get-port-security", m.port)}
	e, _ := c.entry(m.pod, "default/lan")
	var told string
	if e.DHCP != nil && e.DHCP.Server != nil && len(e.Addrs) == 1 {
		told = fmt.Sprint(e.Addrs[0], " ", e.DHCP.State, " ", *e.DHCP.Server)
	}
	return cmp.Diff(append(want, fmt.Sprintf("%s/%d %s %s", addr, m.bits, state, c.Lab.Phys.Gateway)), append(got, told))
}

// reopen says in the node daemon's place that a machine's guest starts over.
func (c *class) reopen(m *machine) {
	c.t.Helper()
	c.must(c.objects.AnnotatePod(c.t.Context(), m.pod.Namespace, m.pod.Name, m.pod.UID, podnet.Annotation, func(old string) (string, error) {
		networks, err := podnet.ParseNetworks(old)
		if err != nil {
			return "", err
		}
		e, _, err := networks.Entry("default/lan")
		if err != nil {
			return "", err
		}
		e.DHCP.State = podnet.StateOpen
		networks, err = networks.With("default/lan", e)
		return networks.String(), err
	}))
	c.eventually(5*time.Second, func() string { return cmp.Diff(m.mac.String(), c.nbctl("lsp-get-port-security", m.port)) })
	c.nbctl("--wait=hv", "sync")
}

// host is the n-th address of the physical network.
func (c *class) host(n byte) netip.Addr { return c.Lab.Phys.Host(n) }

// claims says by ARP that a machine has an address.
func (c *class) claims(m *machine, addr netip.Addr) {
	c.t.Helper()
	c.send(m.station, broadcast, arp(broadcast, m.mac, m.mac, addr, c.host(254)))
}

// hears shows that everything that has been said to the learner before is behind
// it: a machine's two next addresses are learned. OVN holds back what it learns for
// up to 50 ms.
func (c *class) hears(m *machine, first byte) {
	c.t.Helper()
	for n := range byte(2) {
		c.reopen(m)
		c.claims(m, c.host(first+n))
		c.has(m, c.host(first+n), true)
	}
}

// known are the addresses that the learner knows of a MAC address.
func (c *class) known(mac net.HardwareAddr) []string {
	c.t.Helper()
	out, err := c.Lab.Sbctl(c.t.Context(), "--bare", "--columns=ip", "find", "MAC_Binding", "logical_port="+podnet.LearnerPortName("lan"), `mac="`+mac.String()+`"`)
	c.must(err)
	return strings.Fields(out)
}

// unheard checks that the learner does not know of some claims of a machine's.
func (c *class) unheard(what string, m *machine, claims ...netip.Addr) {
	c.t.Helper()
	known := c.known(m.mac)
	for _, claim := range claims {
		if slices.Contains(known, claim.String()) {
			c.t.Errorf("%s has taught the learner %s", what, claim)
		}
	}
}

// complaint awaits that a pod's problems have one with this reason and text.
func (c *class) complaint(pod *corev1.Pod, within time.Duration, reason, text string) {
	c.t.Helper()
	c.eventually(within, func() string {
		problems, err := c.objects.PodProblems(c.t.Context(), pod.Namespace, pod.Name, time.Time{})
		c.must(err)
		for _, p := range problems {
			if strings.HasPrefix(p, reason+": ") && strings.Contains(p, text) {
				return ""
			}
		}
		return fmt.Sprintf("no problem %s %q of %s among %q", reason, text, pod.Name, problems)
	})
}

// metric is the value of one of the controller's metrics.
func (w *world) metric(name string) float64 {
	w.t.Helper()
	r, err := http.Get("http://" + metricsAddress + "/metrics")
	w.must(err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	w.must(err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			w.must(err)
			return v
		}
	}
	w.t.Fatalf("no metric %s in\n%s", name, text)
	return 0
}

var everybody = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// arp is a request for an address in which hw says that it has the address claimed.
func arp(to, from, hw net.HardwareAddr, claimed, target netip.Addr) []byte {
	return arpMessage(1, to, from, hw, claimed, target)
}

func arpMessage(op byte, to, from, hw net.HardwareAddr, claimed, target netip.Addr) []byte {
	return slices.Concat(to, from, []byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, op}, hw, claimed.AsSlice(), make([]byte, 6), target.AsSlice())
}

// tagged is a frame with an empty VLAN tag.
func tagged(frame []byte) []byte {
	return slices.Concat(frame[:12], []byte{0x81, 0, 0, 0}, frame[12:])
}

// udp is a datagram that no other is like.
func udp(to, from net.HardwareAddr, source, target netip.Addr, ports [2]uint16, text string) []byte {
	be := binary.BigEndian
	payload := fmt.Appendf(nil, "%32s", text)
	header := be.AppendUint16([]byte{0x45, 0}, uint16(28+len(payload)))
	header = slices.Concat(header, []byte{0, 0, 0x40, 0, 64, 17, 0, 0}, source.AsSlice(), target.AsSlice())
	be.PutUint16(header[10:], checksum(header))
	datagram := be.AppendUint16(be.AppendUint16(nil, ports[0]), ports[1])
	datagram = append(be.AppendUint16(datagram, uint16(8+len(payload))), 0, 0)
	return slices.Concat(to, from, []byte{0x08, 0}, header, datagram, payload)
}

// offer is what a DHCP server sends to a client, as far as guards look at it.
func offer(to, from net.HardwareAddr, source netip.Addr, text string) []byte {
	return udp(to, from, source, everybody, [2]uint16{67, 68}, text)
}

// fragment is the first part of a datagram that has more.
func fragment(frame []byte) []byte {
	frame[20], frame[24], frame[25] = 0x20, 0, 0
	binary.BigEndian.PutUint16(frame[24:], checksum(frame[14:34]))
	return frame
}

// neighbor is an IPv6 neighbor advertisement (RFC 4861, 4.4): hw has the address.
func neighbor(from, hw net.HardwareAddr, claimed netip.Addr) []byte {
	all := netip.MustParseAddr("ff02::1")
	icmp := slices.Concat([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, claimed.AsSlice(), []byte{2, 1}, hw)
	pseudo := slices.Concat(claimed.AsSlice(), all.AsSlice(), []byte{0, 0, 0, byte(len(icmp)), 0, 0, 0, 58}, icmp)
	binary.BigEndian.PutUint16(icmp[2:], checksum(pseudo))
	header := []byte{0x60, 0, 0, 0, 0, byte(len(icmp)), 58, 255}
	return slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1}, from, []byte{0x86, 0xdd}, header, claimed.AsSlice(), all.AsSlice(), icmp)
}

// udp6 is an IPv6 datagram to all nodes on the link, of which only what guards look
// at is right.
func udp6(from net.HardwareAddr, text string) []byte {
	payload := fmt.Appendf(nil, "%32s", text)
	header := []byte{0x60, 0, 0, 0, 0, byte(8 + len(payload)), 17, 64}
	source, all := netip.MustParseAddr("fe80::bad"), netip.MustParseAddr("ff02::1")
	datagram := []byte{0, 9, 0, 9, 0, byte(8 + len(payload)), 0, 0}
	return slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1}, from, []byte{0x86, 0xdd}, header, source.AsSlice(), all.AsSlice(), datagram, payload)
}

// arrivals sends frames and behind them a marker by the same way, which nothing
// filters, and returns which of them each receiver has got before that. A frame is
// known by its last bytes: those that a router changes are before.
func (c *class) arrivals(from *station, frames map[string][]byte, receivers map[string]*station) map[string][]string {
	c.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(frames)) {
		c.send(from, frames[name][:6], frames[name])
	}
	c.marked++
	marker := udp(broadcast, from.mac, from.addr, everybody, [2]uint16{9, 9}, fmt.Sprint("marker ", c.marked))
	c.send(from, broadcast, marker)
	deadline := time.Now().Add(10 * time.Second)
	got := map[string][]string{}
	for name, r := range receivers {
		for {
			frame := c.receive(r, deadline)
			if frame == nil {
				c.t.Fatalf("%s: nothing at all arrives", name)
			}
			if bytes.Equal(frame, marker) {
				break
			}
			if len(frame) > 28 && (bytes.Equal(frame[6:12], c.learner) || bytes.Equal(frame[22:28], c.learner)) {
				c.t.Errorf("%s sees the learner: %x", name, frame)
			}
			for what, sent := range frames {
				if bytes.HasSuffix(frame, sent[len(sent)-20:]) {
					got[name] = append(got[name], what)
				}
			}
		}
		if stats, err := r.conn.Stats(); err != nil || stats.Drops > 0 {
			c.t.Errorf("%s: frames are missing: %+v, %v", name, stats, err)
		}
		slices.Sort(got[name])
	}
	return got
}

// arrive checks which frames arrive where.
func (c *class) arrive(when string, from *station, frames map[string][]byte, receivers map[string]*station, want map[string][]string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.arrivals(from, frames, receivers)); diff != "" {
		c.t.Errorf("%s: what arrives (-want +got):\n%s", when, diff)
	}
}

// pinging has a ping run until stop is called, which checks that nothing was lost.
func (w *world) pinging(netns string, target netip.Addr) (stop func()) {
	w.t.Helper()
	cmd := w.Lab.InNetns(w.t.Context(), netns, "ping", "-i0.1", target.String())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	w.must(cmd.Start())
	return func() {
		w.t.Helper()
		w.must(cmd.Process.Signal(syscall.SIGINT))
		err := cmd.Wait()
		var sent, received int
		if _, summary, ok := strings.Cut(out.String(), "ping statistics ---\n"); ok {
			fmt.Sscanf(summary, "%d packets transmitted, %d received", &sent, &received)
		}
		// The answer to the last may be on its way.
		if err != nil || received == 0 || received < sent-1 {
			w.t.Errorf("ping of %s in %s: %v\n%s", target, netns, err, &out)
		}
	}
}

// TestAdversary has a guest that means harm, on a network where OVN learns
// addresses from ARP.
func TestAdversary(t *testing.T) {
	newer, err := lab.OVN25()
	if err != nil {
		t.Fatal(err)
	}
	for name, ovn := range map[string]string{"OVN 23.03": "", "OVN 25.03": newer} {
		t.Run(name, func(t *testing.T) {
			// Gateway and DHCP server are two, so that each has its own protection.
			c := newClass(t, lab.Options{OVN: ovn, Nodes: 2, DNSMasqArgs: []string{"--dhcp-option=option:router,10.1.192.2"}})
			mallory, alice := c.adversary()
			// OVN 25.03 announces a port's address again and again for a while. When the port
			// is open by then, the controller hears that address, too, and counts a change:
			// what a guest that changes its address quickly gets depends on when OVN speaks.
			if ovn == "" {
				c.everyTime(alice, c.host(2))
				c.restless(mallory, alice)
			}
		})
	}
}

func (c *class) adversary() (mallory, alice *machine) {
	server, gateway := c.Lab.Phys.Gateway, c.host(2)
	c.physAddr("add", netip.PrefixFrom(gateway, 24))
	web, db := c.join("default", "web", 0, nil), c.join("default", "db", 1, nil)
	mallory, alice = c.machine("mallory", 0), c.machine("alice", 0)
	bob := c.machine("bob", 0)
	c.nbctl("--wait=hv", "sync")
	stops := []func(){c.pinging("sandbox-default-web", gateway), c.pinging("sandbox-default-db", web.addr)}

	everywhere := map[string]*station{"web": web.station, "db": db.station, "alice": alice.station, "uplink": c.uplinks[0]}
	c.stopped(mallory, web.station, server, gateway, everywhere)
	c.arrive("from a plain pod", web.station, map[string][]byte{
		"the gateway's":      arp(broadcast, web.mac, web.mac, gateway, c.host(231)),
		"an offer":           offer(broadcast, web.mac, web.addr, "offer of web"),
		"an offer to a port": offer(alice.mac, web.mac, web.addr, "offer of web to alice"),
	}, map[string]*station{"db": db.station, "alice": alice.station, "uplink": c.uplinks[0]}, map[string][]string{})
	c.hears(bob, 150)
	if diff := c.differs(mallory, mallory.addr, false); diff != "" {
		c.t.Errorf("after claims that were stopped:\n%s", diff)
	}
	c.unheard("claims that were stopped", mallory, c.host(160), c.host(161), gateway, server, web.addr)
	c.refuses(mallory, everywhere)
	c.fromOutside(mallory, alice, web.station)
	c.harmless(mallory, everywhere)
	for _, stop := range stops {
		stop()
	}
	c.servesDHCP(mallory, everywhere)
	return mallory, alice
}

// stopped are the claims that don't leave an open port.
func (c *class) stopped(mallory *machine, victim *station, server, gateway netip.Addr, everywhere map[string]*station) {
	c.t.Helper()
	mac, physical, ports := mallory.mac, c.outside.mac, [2]uint16{9, 9}
	// The targets tell ARP messages apart.
	n := byte(200)
	next := func() netip.Addr { n++; return c.host(n) }
	c.arrive("claims of others' addresses", mallory.station, map[string][]byte{
		"gateway, request":         arp(broadcast, mac, mac, gateway, next()),
		"gateway, reply":           arpMessage(2, broadcast, mac, mac, gateway, next()),
		"gateway, to the victim":   arpMessage(2, victim.mac, mac, mac, gateway, next()),
		"gateway, to the gateway":  arpMessage(2, physical, mac, mac, gateway, next()),
		"gateway, with a tag":      tagged(arp(broadcast, mac, mac, gateway, next())),
		"DHCP server":              arp(broadcast, mac, mac, server, next()),
		"victim":                   arp(broadcast, mac, mac, victim.addr, next()),
		"victim, to the gateway":   arpMessage(2, physical, mac, mac, victim.addr, next()),
		"packet of the gateway":    udp(broadcast, mac, gateway, everybody, ports, "as gateway"),
		"packet of the server":     udp(victim.mac, mac, server, victim.addr, ports, "as server"),
		"packet of the victim":     udp(physical, mac, victim.addr, gateway, ports, "as victim"),
		"packet of IPv6":           udp6(mac, "IPv6"),
		"DHCP offer":               offer(broadcast, mac, mallory.addr, "offer"),
		"DHCP offer to the victim": offer(victim.mac, mac, mallory.addr, "offer to the victim"),
		"DHCP ACK as the server":   offer(broadcast, mac, server, "ack"),
		"DHCP offer in fragments":  fragment(offer(broadcast, mac, mallory.addr, "offer in fragments")),
		"as the victim's MAC":      arp(broadcast, victim.mac, victim.mac, victim.addr, next()),
		"as the gateway's MAC":     arp(broadcast, physical, physical, gateway, next()),
		"packet as the victim's":   udp(physical, victim.mac, mallory.addr, gateway, ports, "as victim's MAC"),
		"ARP of the victim's MAC":  arp(broadcast, mac, victim.mac, c.host(160), next()),
		"ARP by the victim's MAC":  arp(broadcast, victim.mac, mac, c.host(161), next()),
	}, everywhere, map[string][]string{})
}

// refuses shows what the learner hears and the controller doesn't take.
func (c *class) refuses(mallory *machine, everywhere map[string]*station) {
	c.t.Helper()
	for _, claim := range []struct {
		addr netip.Addr
		why  string
	}{
		{netip.MustParseAddr("198.51.100.7"), "outside the network's subnet"},
		{c.host(0), "network or broadcast address"},
		{c.host(255), "network or broadcast address"},
		{netip.MustParseAddr("127.0.0.1"), "no host on a network"},
		{netip.MustParseAddr("169.254.1.1"), "no host on a network"},
	} {
		c.claims(mallory, claim.addr)
		c.complaint(mallory.pod, 10*time.Second, "AddressRefused", claim.addr.String()+" is not taken from ARP: ")
		c.complaint(mallory.pod, time.Second, "AddressRefused", claim.why)
	}
	if got := c.metric(`ovn_dhcp_ipam_controller_problems_total{kind="Pod",reason="AddressRefused"}`); got < 5 {
		c.t.Errorf("the metric counts %v refusals", got)
	}
	// A probe, RFC 5227. It says nothing of its sender, and passes.
	probe := map[string][]byte{"probe": arp(broadcast, mallory.mac, mallory.mac, netip.IPv4Unspecified(), c.host(170))}
	all := map[string][]string{}
	for name := range everywhere {
		all[name] = []string{"probe"}
	}
	c.arrive("a probe", mallory.station, probe, everywhere, all)
	if diff := c.differs(mallory, mallory.addr, false); diff != "" {
		c.t.Errorf("after claims that were refused:\n%s", diff)
	}
}

// fromOutside has somebody on the physical network speak as a guest.
func (c *class) fromOutside(mallory, alice *machine, web *station) {
	c.t.Helper()
	frames := map[string][]byte{
		"request": arp(broadcast, mallory.mac, mallory.mac, c.host(180), c.host(240)),
		"gossip":  arp(broadcast, c.outside.mac, mallory.mac, c.host(181), c.host(241)),
		"reply":   arpMessage(2, c.learner, mallory.mac, mallory.mac, c.host(182), netip.MustParseAddr("0.0.0.1")),
	}
	c.arrive("from outside", c.outside, frames, map[string]*station{"web": web}, map[string][]string{"web": {"gossip", "request"}})
	for n := range 100 {
		claimed := netip.MustParseAddr(fmt.Sprintf("fe80::bad:%x", n))
		c.send(c.outside, broadcast, neighbor(mallory.mac, mallory.mac, claimed))
	}
	c.hears(alice, 152)
	c.forgets(20)
	c.unheard("what came from outside", mallory, c.host(180), c.host(181), c.host(182))
	if diff := c.differs(mallory, mallory.addr, false); diff != "" {
		c.t.Errorf("after frames from outside:\n%s", diff)
	}
}

// harmless shows that the learner answers for nobody and routes nothing.
func (c *class) harmless(m *machine, everywhere map[string]*station) {
	c.t.Helper()
	ports := [2]uint16{9, 9}
	c.arrive("frames to the learner", m.station, map[string][]byte{
		"to elsewhere":      udp(c.learner, m.mac, m.addr, netip.MustParseAddr("198.51.100.1"), ports, "routed elsewhere"),
		"to a neighbour":    udp(c.learner, m.mac, m.addr, everywhere["db"].addr, ports, "routed to a neighbour"),
		"to the router":     udp(c.learner, m.mac, m.addr, netip.MustParseAddr("0.0.0.1"), ports, "to the router"),
		"reply to it":       arpMessage(2, c.learner, m.mac, m.mac, m.addr, netip.MustParseAddr("0.0.0.1")),
		"to everybody else": udp(c.learner, m.mac, m.addr, everybody, ports, "routed to all"),
	}, everywhere, map[string][]string{})
	// The site's gateway answers, and nobody else does for anything: its answer to
	// the last request comes after all others.
	for _, addr := range []netip.Addr{c.host(251), netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("8.8.8.8"), c.Lab.Phys.Gateway} {
		c.send(m.station, broadcast, m.arp(addr))
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		frame := c.receive(m.station, deadline)
		if frame == nil {
			c.t.Fatal("the gateway does not answer")
		}
		if len(frame) < 42 || !bytes.Equal(frame[12:22], []byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2}) || !bytes.Equal(frame[:6], m.mac) {
			continue
		}
		if by, _ := netip.AddrFromSlice(frame[28:32]); by == c.Lab.Phys.Gateway {
			return
		}
		c.t.Errorf("somebody has answered: %x", frame)
	}
}

// servesDHCP shows the same offers on a network where guests may be DHCP servers.
func (c *class) servesDHCP(m *machine, everywhere map[string]*station) {
	c.t.Helper()
	offers := map[string][]byte{
		"offer":               offer(broadcast, m.mac, m.addr, "offer"),
		"offer as the server": offer(broadcast, m.mac, c.Lab.Phys.Gateway, "offer as the server"),
	}
	c.must(c.PutNetwork(c.lanWith(map[string]any{"allowDHCPServer": true})))
	c.eventually(5*time.Second, func() string {
		return cmp.Diff("", c.nbctl("--bare", "--columns=match", "find", "ACL", "external_ids:type=dhcpServerGuard"))
	})
	c.nbctl("--wait=hv", "sync")
	all := map[string][]string{}
	for name := range everywhere {
		all[name] = []string{"offer"}
	}
	// The vSwitch goes on for a moment as it has done with such frames before.
	c.eventually(5*time.Second, func() string { return cmp.Diff(all, c.arrivals(m.station, offers, everywhere)) })
	c.must(c.PutNetwork(c.lan))
}

// everyTime has a guest's kernel change its address there and back.
func (c *class) everyTime(m *machine, gateway netip.Addr) {
	c.t.Helper()
	for _, n := range []byte{190, 191, 190} {
		c.reopen(m)
		c.in(m.netns, "ip", "addr", "flush", "dev", "eth0")
		c.in(m.netns, "ip", "neigh", "flush", "dev", "eth0")
		c.in(m.netns, "ip", "addr", "add", netip.PrefixFrom(c.host(n), m.bits).String(), "dev", "eth0")
		c.in(m.netns, "ping", "-c3", "-i0.1", "-W5", gateway.String()) // while the port changes
		c.has(m, c.host(n), true)
		c.eventually(5*time.Second, func() string { return cmp.Diff([]string{c.host(n).String()}, c.known(m.mac)) })
		c.nbctl("--wait=hv", "sync")
		c.in(m.netns, "ping", "-c1", "-W5", gateway.String())
	}
}

// restless has a guest change its address as often as it can.
func (c *class) restless(m, neighbour *machine) {
	c.t.Helper()
	const most = 6
	for n := range byte(most) {
		c.reopen(m)
		c.claims(m, c.host(50+n))
		c.has(m, c.host(50+n), true)
	}
	c.reopen(m)
	for n := range byte(5) {
		c.claims(m, c.host(60+n))
		c.complaint(m.pod, 10*time.Second, "AddressRefused", c.host(60+n).String()+" is not taken from ARP: it would be change 7")
	}
	c.has(m, c.host(50+most-1), false)
	c.in(neighbour.netns, "ping", "-c1", "-W5", c.host(2).String())
}

// lessons is how many rows the learner has.
func (c *class) lessons() int {
	c.t.Helper()
	out, err := c.Lab.Sbctl(c.t.Context(), "--bare", "--columns=_uuid", "find", "MAC_Binding", "logical_port="+podnet.LearnerPortName("lan"))
	c.must(err)
	return len(strings.Fields(out))
}

// forgets awaits that the learner has few addresses, and returns how many it had.
func (c *class) forgets(few int) (most int) {
	c.t.Helper()
	c.eventually(time.Minute, func() string {
		n := c.lessons()
		if most = max(n, most); n >= few {
			return fmt.Sprintf("the learner has %d addresses", n)
		}
		return ""
	})
	return most
}

// flood sends one frame after the other, some thousand a second, until stop is
// called and at least so many have been sent.
func (s *station) flood(least int, frame func(n int) []byte) (stop func() error) {
	ended, result := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ended:
				if n >= least {
					result <- nil
					return
				}
			default:
			}
			if n%4 == 0 {
				<-tick.C
			}
			if _, err := s.conn.WriteTo(frame(n), &packet.Addr{HardwareAddr: broadcast}); err != nil {
				result <- err
				return
			}
		}
	}()
	return func() error {
		close(ended)
		return <-result
	}
}

// TestFlood has one guest say that it has ten thousand addresses, while another
// one's is learned, and then a machine
// outside that as many others have one.
func TestFlood(t *testing.T) {
	const senders = 10000
	c := newClass(t, lab.Options{})
	mallory, alice := c.machine("mallory", 0), c.machine("alice", 0)
	c.nbctl("--wait=hv", "sync")
	began := time.Now()
	stop := mallory.flood(senders, func(n int) []byte {
		return arp(broadcast, mallory.mac, mallory.mac, netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}), mallory.addr)
	})
	id := podnet.LearnerName("lan") + ":port:" + mallory.port
	c.eventually(30*time.Second, func() string {
		if c.nbctl("--bare", "--columns=_uuid", "find", "ACL", `external_ids:"ovn-dhcp-ipam/id"="`+id+`"`) == "" {
			return "the flooding port is still listened to"
		}
		return ""
	})
	deaf := time.Since(began)
	c.hears(alice, 150)
	heard := time.Since(began)
	c.must(stop())
	flooded := time.Since(began)
	t.Logf("flood of ARP for %v: not listened to after %v, another guest's two addresses learned after %v; %d rows at its end", flooded, deaf, heard, c.forgets(100))
	c.complaint(mallory.pod, 10*time.Second, "TooManyAddresses", "speaks from more than")
	if diff := c.differs(mallory, mallory.addr, false); diff != "" {
		t.Errorf("after the flood:\n%s", diff)
	}

	began = time.Now()
	c.must(c.outside.flood(senders, func(n int) []byte {
		mac := net.HardwareAddr{2, 0, 0, 9, byte(n >> 8), byte(n)}
		return neighbor(mac, mac, netip.AddrFrom16([16]byte{0xfe, 0x80, 14: byte(n >> 8), 15: byte(n)}))
	})())
	flooded = time.Since(began)
	most := c.forgets(100)
	t.Logf("flood of neighbor discovery from outside for %v: %d rows at its end, fewer than 100 %v later", flooded, most, time.Since(began)-flooded)
	c.hears(alice, 152)
	c.foreign(alice)
}

// foreign has OVN learn what is no concern of the controller's.
func (c *class) foreign(m *machine) {
	c.t.Helper()
	c.nbctl("lr-add", "other", "--", "lrp-add", "other", "other-port", "0a:00:00:00:0f:01", "192.0.2.1/24")
	c.nbctl("--wait=hv", "sync")
	// teach inserts rows of a router port in one transaction.
	teach := func(port, subnet string, mac func(n int) string, rows int) {
		c.t.Helper()
		datapath, err := c.Lab.Sbctl(c.t.Context(), "--bare", "--columns=datapath", "find", "Port_Binding", "logical_port="+port)
		c.must(err)
		var args []string
		for n := range rows {
			args = append(args, "--", "create", "MAC_Binding", "logical_port="+port, "datapath="+strings.TrimSpace(datapath),
				fmt.Sprintf("ip=%s.%d.%d", subnet, n>>8, n&0xff), `mac="`+mac(n)+`"`)
		}
		_, err = c.Lab.Sbctl(c.t.Context(), args[1:]...)
		c.must(err)
	}
	learner := podnet.LearnerPortName("lan")
	nobody := func(n int) string { return fmt.Sprintf("0a:00:00:01:%02x:%02x", n>>8, n&0xff) }
	// cost is how long the controller has worked on something. What the machine's
	// port, which is pinned, is said to have is removed, which comes last.
	cost := func(work func()) float64 {
		c.t.Helper()
		before := c.metric("process_cpu_seconds_total")
		work()
		teach(learner, "198.51", func(int) string { return m.mac.String() }, 1)
		c.eventually(10*time.Second, func() string {
			if slices.Contains(c.known(m.mac), "198.51.0.0") {
				return "the learner still has what was said before the port was pinned"
			}
			return ""
		})
		return c.metric("process_cpu_seconds_total") - before
	}
	written := c.written()
	const rows = 1000
	idle := cost(func() {})
	foreign := cost(func() { teach("other-port", "198.18", nobody, rows) })
	own := cost(func() { teach(learner, "198.19", nobody, rows) })
	c.t.Logf("CPU seconds of the controller: %.2f for nothing, %.2f for %d rows of another router, %.2f for those of its own", idle, foreign, rows, own)
	if c.written() != written {
		c.t.Error("the controller has written to the northbound database")
	}
	if foreign-idle > (own-idle)/2 {
		c.t.Errorf("%d rows of another router have cost the controller %.2f s", rows, foreign-idle)
	}
}

// written is the size of the northbound database's log of transactions.
func (c *class) written() int64 {
	c.t.Helper()
	info, err := os.Stat(filepath.Join(c.Lab.Dir, "central", "ovnnb_db.db"))
	c.must(err)
	return info.Size()
}

// TestBindings has OVN's agent on a node fail and come back. What it says then of
// a silent guest is no evidence, and a port that it does not bind is told of.
func TestBindings(t *testing.T) {
	c := newClass(t, lab.Options{Nodes: 2})
	alice, others := c.machine("alice", 0), []*machine{c.machine("bob", 0), c.machine("carol", 0)}
	away, here := c.Lab.Nodes[1], c.Lab.Nodes[0]
	c.must(away.StopController())
	pod := c.Pod("default", "stranded", 1, "uid-stranded")
	pod.Annotations = map[string]string{podnet.Annotation: `{"default/lan":{"mac_address":"02:00:00:00:00:42","role":"secondary","ipam_mode":"dhcp"}}`}
	c.must(c.PutPod(pod))

	c.must(here.StopController())
	c.must(here.StartController())
	deadline := time.Now().Add(20 * time.Second)
	for {
		frame := c.receive(c.uplinks[0], deadline)
		if frame == nil {
			t.Fatal("OVN does not announce the address of the silent guest")
		}
		if len(frame) >= 42 && bytes.Equal(frame[6:14], append(slices.Clone(alice.mac), 0x08, 0x06)) && bytes.Equal(frame[28:32], alice.addr.AsSlice()) {
			break
		}
	}
	c.eventually(10*time.Second, func() string {
		if !slices.Contains(c.known(alice.mac), alice.addr.String()) {
			return "the learner has not heard the announcement"
		}
		return ""
	})
	for n, m := range others {
		c.claims(m, c.host(150+byte(n)))
		c.has(m, c.host(150+byte(n)), true)
	}
	if diff := c.differs(alice, alice.addr, false); diff != "" {
		t.Errorf("after OVN's own announcement:\n%s", diff)
	}

	port := podnet.PortName("default/lan", "default", "stranded")
	c.complaint(pod, 20*time.Second, "PortNotBound", "port "+port+" of attachment default/lan, which is for chassis "+away.Name+", has not been bound")
	c.must(here.StopController()) // which would let go of it
	chassis, err := c.Lab.Sbctl(t.Context(), "--bare", "--columns=_uuid", "find", "Chassis", "hostname="+here.Name)
	c.must(err)
	_, err = c.Lab.Sbctl(t.Context(), "set", "Port_Binding", port, "chassis="+strings.TrimSpace(chassis))
	c.must(err)
	c.complaint(pod, 10*time.Second, "PortNotBound", "which is for chassis "+away.Name+", is bound on chassis "+here.Chassis)
}
