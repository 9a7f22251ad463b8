// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package watcher

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// client makes a message that of another client.
func client(mac net.HardwareAddr) func(*dhcpv4.DHCPv4) {
	return func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = mac }
}

// TestWatchLab follows a real client and server through a lease's life.
func TestWatchLab(t *testing.T) {
	n := newNetwork(t).watch()
	n.serve()
	guest, mac := n.guest(1)
	begin := time.Now().Add(-time.Second)

	udhcpc := n.client(guest)
	n.await("ACK", func() bool { return len(of[Ack](n, guest)) == 1 })
	lease := of[Ack](n, guest)[0].Lease
	if got := lease.Expires.Sub(lease.Acquired); got != time.Hour || lease.Acquired.Before(begin) || lease.Acquired.After(time.Now()) {
		t.Errorf("lease from %v to %v", lease.Acquired, lease.Expires)
	}
	if !netip.MustParsePrefix("192.0.2.0/24").Contains(lease.Addr.Addr()) || lease.Addr.Bits() != 24 {
		t.Errorf("address %v", lease.Addr)
	}
	bridge, err := net.InterfaceByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	want := dhcp.Lease{
		Addr: lease.Addr, Gateway: addr("192.0.2.1"), Server: addr("192.0.2.2"), ServerHW: bridge.HardwareAddr, HardwareAddr: mac,
		ClientID: append([]byte{1}, mac...), Acquired: lease.Acquired, Expires: lease.Expires,
	}
	if diff := cmp.Diff(want, lease, compareAddrs, comparePrefixes); diff != "" {
		t.Errorf("lease (-want +got):\n%s", diff)
	}
	var order []string
	for _, s := range n.all(guest) {
		order = append(order, fmt.Sprintf("%T", s))
	}
	if order = slices.Compact(order); !slices.Equal(order[:3], []string{"watcher.Discover", "watcher.Request", "watcher.Ack"}) {
		t.Errorf("seen: %v", order)
	}

	// The renewal goes by unicast, and begins with ARP. The client heeds the signal
	// once it has the address.
	n.await("the address on the interface", func() bool {
		out, err := exec.Command("ip", "-n", guest, "addr", "show", "dev", "eth0").CombinedOutput()
		return err == nil && strings.Contains(string(out), lease.Addr.String())
	})
	if err := udhcpc.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	n.await("renewal", func() bool { return len(of[Ack](n, guest)) == 2 })
	n.await("ARP", func() bool { return slices.Contains(of[ARP](n, guest), ARP{Sender: lease.Addr.Addr()}) })
	if got := of[Ack](n, guest)[1].Lease; got.Addr != lease.Addr || !got.Expires.After(lease.Expires) {
		t.Errorf("renewal of %v until %v, before until %v", got.Addr, got.Expires, lease.Expires)
	}

	if err := udhcpc.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	n.await("RELEASE", func() bool { return slices.Contains(of[Release](n, guest), Release{lease.Addr.Addr()}) })

	// The server refuses what is not on its subnet.
	request := message(dhcpv4.OpcodeBootRequest, dhcpv4.MessageTypeRequest, 9, client(mac), option(dhcpv4.OptionRequestedIPAddress, 198, 51, 100, 7))
	send(t, n.wire(guest, "eth0"), fromNobody(udp(mac, 68, 67, request)))
	n.await("NAK", func() bool { return slices.Contains(of[Nak](n, guest), Nak{addr("198.51.100.7")}) })
}

// fromNobody makes 0.0.0.0 the source of a frame's datagram, and completes the
// header's checksum for the kernel to take it.
func fromNobody(frame []byte) []byte {
	ip := frame[etherLen:]
	copy(ip[12:16], []byte{0, 0, 0, 0})
	sum := uint32(0)
	for i := 0; i < ipv4Len; i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = ^(sum>>16 + sum&0xffff)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	return frame
}

// TestFollowLab: a guest with another client id than the ADD's probe gets another
// address; the state follows what is seen, and gives the probe's back.
func TestFollowLab(t *testing.T) {
	n := newNetwork(t).watch()
	n.serve()
	guest, _ := n.guest(1)
	n.client(guest, "-q")
	n.await("ACK", func() bool { return len(of[Ack](n, guest)) > 0 })
	probe := of[Ack](n, guest)[0].Lease
	before := len(n.all(guest))

	s, _ := NewState(time.Now()).Next(time.Now(), Probed{probe})
	n.client(guest, "-x", "0x3d:ff000000010001000102030405060708")
	n.await("second ACK", func() bool { return len(of[Ack](n, guest)) > 1 })
	own := of[Ack](n, guest)[1].Lease
	if own.Addr == probe.Addr || own.ClientID[0] != 0xff {
		t.Fatalf("the guest got %v as %x, the probe %v", own.Addr, own.ClientID, probe.Addr)
	}
	var done []string
	for _, seen := range n.all(guest)[before:] {
		var effects []Effect
		s, effects = s.Next(time.Now(), seen)
		done = append(done, said(effects)...)
	}
	want := []string{ReasonAddressChanged, "release " + probe.Addr.Addr().String(), "publish bound " + own.Addr.String()}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestForgeryLab: nothing that the guest sends is taken for a server's word, and
// nothing that anybody else sends unless it answers the guest.
func TestForgeryLab(t *testing.T) {
	n := newNetwork(t).watch()
	guest, mac := n.guest(1)
	inside, outside := n.wire(guest, "eth0"), n.wire("", near(guest))
	reply := func(xid byte, address byte, of net.HardwareAddr) []byte {
		return fromServer(dhcpv4.MessageTypeAck, xid, client(of), func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IP{192, 0, 2, address} })
	}
	other := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	ack := reply(7, 11, mac)
	copy(ack[6:12], mac)

	send(t, outside, reply(7, 10, mac)) // before there is a REQUEST
	send(t, inside, udp(mac, 68, 67, message(dhcpv4.OpcodeBootRequest, dhcpv4.MessageTypeRequest, 7, client(mac))))
	n.await("REQUEST", func() bool { return len(of[Request](n, guest)) == 1 })
	send(t, inside, ack)
	n.await("the guest's ACK", func() bool { return len(of[ServerTraffic](n, guest)) == 1 })
	send(t, inside, reply(7, 12, mac))
	n.await("a foreign MAC address", func() bool { return len(of[ForeignMAC](n, guest)) == 1 })
	send(t, inside, arpFrame(mac, other, "192.0.2.1", "192.0.2.10"))
	n.await("a foreign sender", func() bool {
		return slices.ContainsFunc(of[ForeignMAC](n, guest), func(f ForeignMAC) bool { return slices.Equal(f.MAC, other) })
	})
	tagged := arpFrame(mac, mac, "192.0.2.66", "192.0.2.1")
	send(t, inside, slices.Insert(tagged, 12, 0x81, 0, 0, 5))
	send(t, outside, reply(8, 13, mac))
	send(t, outside, reply(7, 14, other))
	send(t, outside, reply(7, 15, mac))
	n.await("ACK", func() bool { return len(of[Ack](n, guest)) > 0 })
	var got []netip.Addr
	for _, a := range of[Ack](n, guest) {
		got = append(got, a.Lease.Addr.Addr())
	}
	if diff := cmp.Diff([]netip.Addr{addr("192.0.2.15")}, got, compareAddrs); diff != "" {
		t.Errorf("believed (-want +got):\n%s", diff)
	}
	if got := of[ARP](n, guest); len(got) > 0 {
		t.Errorf("what is in a VLAN is heard: %v", got)
	}
}

// TestFloodLab: a guest that floods with ten thousand ARP senders is looked at now
// and then, and meanwhile both its own lease and another guest's are seen.
func TestFloodLab(t *testing.T) {
	n := newNetwork(t).watch()
	n.serve()
	flooder, mac := n.guest(1)
	guest, _ := n.guest(2)
	wire := n.wire(flooder, "eth0")
	n.client(flooder)
	n.client(guest)

	start, sent := time.Now(), 0
	both := func() bool { return len(of[Ack](n, flooder)) > 0 && len(of[Ack](n, guest)) > 0 }
	for ; sent < 10000 || !both() || len(of[Overrun](n, flooder)) == 0; sent++ {
		send(t, wire, arpFrame(mac, mac, fmt.Sprintf("10.0.%d.%d", sent>>8&255, sent&255), "192.0.2.1"))
		if time.Since(start) > time.Minute {
			t.Fatalf("flooder's %d, guest's %d ACKs; %d overruns", len(of[Ack](n, flooder)), len(of[Ack](n, guest)), len(of[Overrun](n, flooder)))
		}
	}
	seen := len(of[ARP](n, flooder))
	most := quotaBurst + int(quotaRate*time.Since(start).Seconds()) + 1
	if seen == 0 || seen > most {
		t.Errorf("of %d ARP frames %d were looked at, more than %d", sent, seen, most)
	}
	discarded := uint64(0)
	for _, o := range of[Overrun](n, flooder) {
		discarded += o.Discarded
	}
	t.Logf("%d frames in %v: %d looked at, %d discarded", sent, time.Since(start), seen, discarded)

	// Once it is quiet it is heard again.
	n.await("the flooder's ARP", func() bool {
		send(t, wire, arpFrame(mac, mac, "192.0.2.99", "192.0.2.1"))
		return slices.Contains(of[ARP](n, flooder), ARP{Sender: addr("192.0.2.99")})
	})
}

// TestGoneLab: an interface that only goes down is heard again, one that is removed is
// forgotten, and its place can be taken.
func TestGoneLab(t *testing.T) {
	n := newNetwork(t).watch()
	guest, mac := n.guest(1)
	hear := func(address string) {
		t.Helper()
		wire := n.wire(guest, "eth0")
		n.await("ARP of "+address, func() bool {
			send(t, wire, arpFrame(mac, mac, address, "192.0.2.1"))
			return slices.Contains(of[ARP](n, guest), ARP{Sender: addr(address)})
		})
	}
	hear("192.0.2.10")
	n.run("ip", "link", "set", near(guest), "down")
	n.run("ip", "link", "set", near(guest), "up")
	hear("192.0.2.11")
	if got := of[Gone](n, guest); len(got) > 0 {
		t.Error("an interface that was down is gone")
	}
	n.run("ip", "link", "del", near(guest))
	n.await("its end", func() bool { return len(of[Gone](n, guest)) == 1 })
	n.plug(1)
	hear("192.0.2.12")

	n.watcher.Forget(guest)
	if err := n.watcher.Watch(Port{Key: "again", Interface: near(guest), MAC: mac}); err != nil {
		t.Fatal(err)
	}
	wire := n.wire(guest, "eth0")
	for _, address := range []string{"192.0.2.13", "192.0.2.14"} {
		n.await("ARP of "+address, func() bool {
			send(t, wire, arpFrame(mac, mac, address, "192.0.2.1"))
			return slices.Contains(of[ARP](n, "again"), ARP{Sender: addr(address)})
		})
	}
	if slices.Contains(of[ARP](n, guest), ARP{Sender: addr("192.0.2.14")}) {
		t.Error("a forgotten port is heard")
	}
}

// TestRunLab: what comes between Watch and Run is seen, a second Run
// is refused, and one key is one port.
func TestRunLab(t *testing.T) {
	n := newNetwork(t)
	guest, mac := n.guest(1)
	if err := n.watcher.Watch(Port{Key: guest, Interface: near(guest), MAC: mac}); err != nil {
		t.Fatal(err)
	}
	send(t, n.wire(guest, "eth0"), arpFrame(mac, mac, "192.0.2.10", "192.0.2.1"))
	send(t, n.wire(guest, "eth0"), arpFrame(mac, mac, "192.0.2.11", "192.0.2.1"))
	n.watch()
	n.await("ARP", func() bool { return slices.Contains(of[ARP](n, guest), ARP{Sender: addr("192.0.2.11")}) })
	if diff := cmp.Diff([]ARP{{Sender: addr("192.0.2.10")}, {Sender: addr("192.0.2.11")}}, of[ARP](n, guest), compareAddrs); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	if err := n.watcher.Run(t.Context()); err == nil {
		t.Error("a watcher runs twice")
	}
	for _, p := range []Port{{"", "br0", mac}, {"x", "", mac}, {"x", "br0", nil}, {"x", "br0", net.HardwareAddr{1, 0, 0, 0, 0, 1}}, {"x", "h-none", mac}} {
		if err := n.watcher.Watch(p); err == nil {
			t.Errorf("port %+v is watched", p)
		}
	}
}

// TestManyLab: two hundred ports are watched by the threads that watch ten, and
// nothing stays open in the end.
func TestManyLab(t *testing.T) {
	n := newNetwork(t).watch()
	wire, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(wire)
	files := entries(t, "/proc/self/fd")
	watch := func(from, to int) int {
		t.Helper()
		watched := 0
		var lines strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&lines, "link add n%[1]d up group 7 type veth peer name f%[1]d\nlink set f%[1]d up\n", i)
		}
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("making interfaces: %v: %s", err, out)
		}
		devices, err := net.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		for _, far := range devices {
			i, err := strconv.Atoi(strings.TrimPrefix(far.Name, "f"))
			if err != nil || i < from || i >= to {
				continue
			}
			key := fmt.Sprintf("n%d", i)
			if err := n.watcher.Watch(Port{Key: key, Interface: key, MAC: far.HardwareAddr}); err != nil {
				t.Fatal(err)
			}
			frame := arpFrame(far.HardwareAddr, far.HardwareAddr, "192.0.2.10", "192.0.2.1")
			n.await("ARP on "+key, func() bool {
				if err := unix.Sendto(wire, frame, 0, &unix.SockaddrLinklayer{Ifindex: far.Index}); err != nil {
					t.Fatal(err)
				}
				return len(of[ARP](n, key)) > 0
			})
			watched++
		}
		if watched != to-from {
			t.Fatalf("%d ports are watched, not %d", watched, to-from)
		}
		return entries(t, "/proc/self/task")
	}
	defer n.run("ip", "link", "del", "group", "7")
	few := watch(0, 10)
	if many := watch(10, 200); many > few+10 {
		t.Errorf("%d threads with ten ports, %d with two hundred", few, many)
	}
	n.end()
	if left := entries(t, "/proc/self/fd"); left > files {
		t.Errorf("%d files are open, %d were before there was a port", left, files)
	}
	if err := n.watcher.Watch(Port{Key: "late", Interface: "n0", MAC: guestMAC()}); err == nil {
		t.Error("an ended watcher watches")
	}
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
