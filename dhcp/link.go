// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Link is where a client speaks from: an Ethernet interface, maybe in another
// network namespace, which lives at least until the Link is closed. It serves one
// Acquire or Release at a time.
type Link struct {
	name  string
	index int
	hw    net.HardwareAddr
	// Both sockets keep the namespace that they were opened in, so no goroutine
	// or thread has to stay there.
	conn *packet.Conn
	rtnl *netlink.Handle
	buf  []byte
	// clientPort is the socket that occupies it, or -1.
	clientPort int
	// received is the interface's count of received frames when it was opened.
	received uint64
}

// OpenLink opens the interface ifname in the network namespace at netnsPath, or
// in the current one if that is empty. It changes nothing on the interface, and
// does not need it to be up yet.
func OpenLink(netnsPath, ifname string) (*Link, error) {
	return openLink(netnsPath, ifname, netip.Addr{})
}

// openLink is OpenLink, and occupies the client port of the address own, if valid.
func openLink(netnsPath, ifname string, own netip.Addr) (*Link, error) {
	l := &Link{name: ifname, buf: make([]byte, 2048), clientPort: -1}
	open := func(ns.NetNS) error {
		if err := l.open(); err != nil || !own.IsValid() {
			return err
		}
		if err := l.occupy(own); err != nil {
			return errors.Join(err, l.Close())
		}
		return nil
	}
	var err error
	if netnsPath == "" {
		err = open(nil)
	} else {
		err = ns.WithNetNSPath(netnsPath, open)
	}
	if err != nil {
		return nil, fmt.Errorf("opening link %s in netns %q: %w", ifname, netnsPath, err)
	}
	return l, nil
}

// open opens both sockets in the calling thread's namespace.
func (l *Link) open() error {
	rtnl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening rtnetlink: %w", err)
	}
	if err := l.listen(rtnl); err != nil {
		rtnl.Close()
		return err
	}
	l.rtnl = rtnl
	return nil
}

func (l *Link) listen(rtnl *netlink.Handle) error {
	device, err := rtnl.LinkByName(l.name)
	if err != nil {
		return err
	}
	attrs := device.Attrs()
	if len(attrs.HardwareAddr) != 6 {
		return errors.New("not an Ethernet interface")
	}
	filter, err := bpf.Assemble(append(ownFrames(), clientFrames()...))
	if err != nil {
		return fmt.Errorf("assembling filter: %w", err)
	}
	l.index, l.hw = attrs.Index, attrs.HardwareAddr
	l.received = receivedFrames(device)
	l.conn, err = packet.Listen(&net.Interface{Index: attrs.Index}, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	return err
}

// occupy binds a socket, which nobody reads, to the client port of an address of the
// interface. A server answers a client that renews by unicast, and without a socket
// the kernel, which knows nothing of packet sockets, would tell the server that the
// port is unreachable. If the address can't be bound, because the interface doesn't
// have it or somebody else has the port, the kernel won't do that anyway.
func (l *Link) occupy(own netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening socket for the client port: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: dhcpv4.ClientPort, Addr: own.As4()})
	if err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EADDRINUSE) {
			return nil
		}
		return fmt.Errorf("binding %s port %d: %w", own, dhcpv4.ClientPort, err)
	}
	l.clientPort = fd
	return nil
}

// Close closes the link. The kernel takes 4 to 20 ms for it, so it is best done
// when nobody waits for the lease any more.
func (l *Link) Close() error {
	l.rtnl.Close()
	if l.clientPort >= 0 {
		_ = unix.Close(l.clientPort)
	}
	return l.conn.Close()
}

// send sends one Ethernet frame.
func (l *Link) send(frame []byte) error {
	_, err := l.conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
	return err
}

// receive returns the next frame that passes the filter. It is valid until the
// next call.
func (l *Link) receive(ctx context.Context) ([]byte, error) {
	if err := l.conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // fails when the link is closed, and so does the read then
	})
	defer func() {
		if !stop() {
			<-woken // else it could end the next call
		}
	}()
	for {
		n, _, err := l.conn.ReadFrom(l.buf)
		switch {
		case err == nil:
			return l.buf[:n], nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, unix.ENETDOWN):
			// Said once when the interface goes down; it may come up again.
		default:
			return nil, err
		}
	}
}

// awaitCarrier returns when the interface is up and has carrier, so that the
// first frame is not sent in vain. Nothing tells a packet socket of that, so it
// looks again in short intervals.
func (l *Link) awaitCarrier(ctx context.Context) error {
	const wanted = unix.IFF_UP | unix.IFF_LOWER_UP
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		device, err := l.rtnl.LinkByIndex(l.index)
		if err != nil {
			return fmt.Errorf("looking for carrier: %w", err)
		}
		flags := device.Attrs().RawFlags
		if flags&wanted == wanted {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if flags&unix.IFF_UP == 0 {
				return fmt.Errorf("interface is down: %w", ctx.Err())
			}
			return fmt.Errorf("no carrier: %w", ctx.Err())
		}
	}
}

// receivedSinceOpen is the number of frames of any kind that the interface has
// received since OpenLink; 0 if it is gone.
func (l *Link) receivedSinceOpen() uint64 {
	device, err := l.rtnl.LinkByIndex(l.index)
	if err != nil {
		return 0
	}
	return receivedFrames(device) - l.received
}

func receivedFrames(device netlink.Link) uint64 {
	if s := device.Attrs().Statistics; s != nil {
		return s.RxPackets
	}
	return 0
}

// ownFrames is the part of the filter that drops what is not addressed to this
// interface in the first place: frames on their way out, which a socket for all
// protocols sees too, and frames of a VLAN on top of it, whose tag the kernel has
// already taken out of the data. VLAN 0 is a priority, not a VLAN.
func ownFrames() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadExtension{Num: bpf.ExtVLANTag},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: 0x0fff, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

// clientFrames is the part of the filter that lets pass what a DHCP client wants
// to see: whole UDP datagrams to its port, and ARP replies. Without it each
// broadcast on the network would wake each open link.
func clientFrames() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2}, // EtherType
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: etherTypeIPv4, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: etherTypeARP, SkipTrue: 9},
		bpf.LoadAbsolute{Off: etherLen + 6, Size: 2}, // ARP operation
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arpOpReply, SkipTrue: 8, SkipFalse: 7},
		bpf.LoadAbsolute{Off: etherLen + 9, Size: 1}, // IPv4 protocol
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolUDP, SkipTrue: 5},
		bpf.LoadAbsolute{Off: etherLen + 6, Size: 2}, // more fragments, fragment offset
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 3},
		bpf.LoadMemShift{Off: etherLen},              // X = length of the IPv4 header
		bpf.LoadIndirect{Off: etherLen + 2, Size: 2}, // UDP destination port
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: dhcpv4.ClientPort, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 0xffff},
	}
}
