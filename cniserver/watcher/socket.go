// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// receiveBuffer is what the kernel may keep for a port, in bytes, times two: about
// a hundred frames.
const receiveBuffer = 64 << 10

// openSocket opens a packet socket for what leaves and enters the interface. It sees
// frames before a bridge or datapath takes them, and after.
func openSocket(ifname string, mac net.HardwareAddr) (fd int, err error) {
	// Without a protocol it hears nothing until it is bound, when the filter is there.
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening packet socket: %w", err)
	}
	if err := prepareSocket(fd, ifname, mac); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func prepareSocket(fd int, ifname string, mac net.HardwareAddr) error {
	request, err := unix.NewIfreq(ifname)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return fmt.Errorf("looking up interface: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
		return fmt.Errorf("setting receive buffer: %w", err)
	}
	if err := listenFor(fd, mac, everything); err != nil {
		return err
	}
	// Frames on their way out are only given to sockets for all protocols.
	all := uint16(unix.ETH_P_ALL)
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: int(request.Uint32())})
	if err != nil {
		return fmt.Errorf("binding packet socket: %w", err)
	}
	return nil
}

// listenFor makes the socket hear these classes from now on.
func listenFor(fd int, mac net.HardwareAddr, heard class) error {
	program, err := filter(mac, heard)
	if err != nil {
		return err
	}
	return attach(fd, program)
}

func attach(fd int, program []bpf.RawInstruction) error {
	raw := make([]unix.SockFilter, len(program))
	for i, p := range program {
		raw[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(raw)), Filter: unsafe.SliceData(raw)})
	if err != nil {
		return fmt.Errorf("attaching filter: %w", err)
	}
	return nil
}

// receive reads one frame and says whether it was on its way to the guest.
func receive(fd int, buf []byte) (n int, toGuest bool, err error) {
	n, from, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return 0, false, err
	}
	link, ok := from.(*unix.SockaddrLinklayer)
	return n, ok && link.Pkttype == unix.PACKET_OUTGOING, nil
}

// interfaceGone tells whether the socket's interface was removed, or moved to another
// network namespace: the kernel unbinds the socket for good then.
func interfaceGone(fd int) bool {
	name, err := unix.Getsockname(fd)
	link, ok := name.(*unix.SockaddrLinklayer)
	return err == nil && ok && link.Ifindex <= 0
}

// overflowed is how many frames the full buffer has cost since the last call.
func overflowed(fd int) uint64 {
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(stats.Drops)
}
