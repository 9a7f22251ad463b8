// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Link is where a client speaks from: an Ethernet interface, maybe in another
// network namespace, which lives at least until the Link is closed. It serves one
// Acquire or Release at a time.
type Link struct {
	name string
	hw   net.HardwareAddr
	// space is where it was opened; empty for where the caller was.
	space space
	// socket is a packet socket that is bound to the interface. It keeps the namespace
	// that it was opened in, so no goroutine or thread has to stay there, and all else
	// is asked of the interface by way of it.
	socket *os.File
	raw    syscall.RawConn
	buf    []byte
	// clientPort is the socket that occupies it, or -1.
	clientPort int
	// waited tells that a wait for a frame was in vain, and received is the interface's
	// count of received frames then.
	waited   bool
	received uint64
}

// OpenLink opens the interface ifname in the network namespace at netnsPath, or
// in the current one if that is empty. It changes nothing on the interface, and
// does not need it to be up yet.
func OpenLink(netnsPath, ifname string) (*Link, error) {
	return openLink(netnsPath, "", ifname, netip.Addr{})
}

// openLink is OpenLink, of the wanted namespace if that is not empty, and occupies the client
// port of the address own, if valid.
func openLink(netnsPath string, wanted space, ifname string, own netip.Addr) (*Link, error) {
	l := &Link{name: ifname, buf: make([]byte, 2048), clientPort: -1}
	open := func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // 0: nothing yet
		if err != nil {
			return fmt.Errorf("opening packet socket: %w", err)
		}
		if err := l.bind(fd); err != nil {
			_ = unix.Close(fd)
			return err
		}
		l.socket = os.NewFile(uintptr(fd), "packet socket on "+ifname)
		if own.IsValid() {
			err = l.occupy(own)
		}
		if err == nil {
			l.raw, err = l.socket.SyscallConn()
		}
		if err != nil {
			return errors.Join(err, l.Close())
		}
		return nil
	}
	var err error
	if netnsPath == "" {
		err = open()
	} else {
		l.space, err = inNetns(netnsPath, wanted, open)
	}
	if err != nil {
		return nil, fmt.Errorf("opening link %s in netns %q: %w", ifname, netnsPath, err)
	}
	return l, nil
}

// bind binds a new packet socket to the interface. The filter is there before the first
// frame.
func (l *Link) bind(fd int) error {
	request, err := unix.NewIfreq(l.name)
	if err != nil {
		return fmt.Errorf("interface name: %w", err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return fmt.Errorf("looking for the interface: %w", err)
	}
	index := int(request.Uint32())
	if err := attachFilter(fd); err != nil {
		return fmt.Errorf("attaching filter: %w", err)
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}) // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: all}); err != nil {
		return fmt.Errorf("binding packet socket: %w", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("address of packet socket: %w", err)
	}
	addr, ok := bound.(*unix.SockaddrLinklayer)
	if !ok || addr.Hatype != unix.ARPHRD_ETHER || addr.Halen != 6 {
		return errors.New("not an Ethernet interface")
	}
	l.hw = bytes.Clone(addr.Addr[:6])
	return nil
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
	if l.clientPort >= 0 {
		_ = unix.Close(l.clientPort)
	}
	return l.socket.Close()
}

// send sends one Ethernet frame.
func (l *Link) send(frame []byte) error {
	_, err := l.socket.Write(frame)
	return err
}

// receive returns the next frame that passes the filter. It is valid until the
// next call.
func (l *Link) receive(ctx context.Context) ([]byte, error) {
	if err := l.socket.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = l.socket.SetReadDeadline(time.Unix(1, 0)) // fails when the link is closed, and so does the read then
	})
	defer func() {
		if !stop() {
			<-woken // else it could end the next call
		}
	}()
	for {
		n, err := l.socket.Read(l.buf)
		switch {
		case err == nil:
			return l.buf[:n], nil
		case ctx.Err() != nil:
			if !l.waited {
				l.waited, l.received = true, l.frames()
			}
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
	const wanted = unix.IFF_UP | unix.IFF_RUNNING // RFC 2863: up, and operational
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		flags, err := l.flags()
		if err != nil {
			return fmt.Errorf("looking for carrier: %w", err)
		}
		if flags&wanted == wanted {
			return l.forgetDown()
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

// forgetDown takes off the socket that the interface was down, which the kernel would tell
// in the place of sending the next frame. Any other error that it keeps is a frame's that is
// lost, so that it is sent again.
func (l *Link) forgetDown() (err error) {
	closed := l.raw.Control(func(fd uintptr) {
		_, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
	})
	if err := errors.Join(closed, err); err != nil {
		return fmt.Errorf("taking an error off the packet socket: %w", err)
	}
	return nil
}

// HardwareAddr is the interface's Ethernet address when the Link was opened.
func (l *Link) HardwareAddr() net.HardwareAddr { return bytes.Clone(l.hw) }

// SetUp sets the interface up, if it is down.
func (l *Link) SetUp() error {
	flags, err := l.flags()
	if err == nil && flags&unix.IFF_UP == 0 {
		_, err = l.ioctlFlags(unix.SIOCSIFFLAGS, flags|unix.IFF_UP)
	}
	if err != nil {
		return fmt.Errorf("setting up interface %s: %w", l.name, err)
	}
	return nil
}

// flags returns the interface's flags. Asked in this way, and not by rtnetlink, the
// kernel doesn't wait for whoever changes interfaces somewhere on the machine.
func (l *Link) flags() (uint16, error) { return l.ioctlFlags(unix.SIOCGIFFLAGS, 0) }

// ioctlFlags gets or sets the interface's flags: see netdevice(7).
func (l *Link) ioctlFlags(request uint, flags uint16) (uint16, error) {
	ifreq, err := unix.NewIfreq(l.name)
	if err != nil {
		return 0, err
	}
	ifreq.SetUint16(flags)
	closed := l.raw.Control(func(fd uintptr) {
		err = unix.IoctlIfreq(int(fd), request, ifreq)
	})
	return ifreq.Uint16(), errors.Join(closed, err)
}

// receivedInVain is the number of frames of any kind that the interface has received
// since the first wait for one of the client's was in vain; 0 if it is gone.
func (l *Link) receivedInVain() uint64 {
	if !l.waited {
		return 0
	}
	return max(l.frames(), l.received) - l.received
}

// frames is how many frames the interface has received ever; 0 if it is gone.
func (l *Link) frames() (n uint64) {
	_ = l.raw.Control(func(fd uintptr) {
		space, err := unix.IoctlRetInt(int(fd), unix.SIOCGSKNS)
		if err != nil {
			return
		}
		defer unix.Close(space)
		rtnl, err := netlink.NewHandleAt(netns.NsHandle(space), unix.NETLINK_ROUTE)
		if err != nil {
			return
		}
		defer rtnl.Close()
		device, err := rtnl.LinkByName(l.name)
		if err == nil && device.Attrs().Statistics != nil {
			n = device.Attrs().Statistics.RxPackets
		}
	})
	return n
}

// attachFilter has a socket see only the frames that the client wants to see.
func attachFilter(fd int) error {
	program, err := bpf.Assemble(append(ownFrames(), clientFrames()...))
	if err != nil {
		return err
	}
	var filter []unix.SockFilter
	for _, i := range program {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
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
