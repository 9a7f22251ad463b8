// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"net"
	"net/netip"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// Observation is what was seen on a port.
type Observation struct {
	// Key is the port's.
	Key string
	At  time.Time
	// Seen is one of this package's sightings, except Probed, Learned and Tick.
	Seen Sighting
}

// Sighting is what State.Next decides upon: something that was seen on a port's
// wire, or Probed, Learned or Tick, which the caller makes. What is said of the guest was
// sent by it, with its own MAC address as the source; the rest of it is the guest's
// word alone.
type Sighting interface{ sighting() }

type (
	// Discover is the guest's DISCOVER: it starts over.
	Discover struct{}

	// Request is the guest's REQUEST.
	Request struct {
		XID [4]byte
		// Addr is the address that it asks for; the zero Addr if it names none.
		Addr netip.Addr
	}

	// Ack is a server's answer to a REQUEST that was seen from this port, on its way
	// to the guest. The lease has an address, server, client identifier and times,
	// and a gateway if the server named one; nothing else. Its Expires counts from the
	// REQUEST. The address can be any that a host may have.
	Ack struct{ Lease dhcp.Lease }

	// Nak is a server's refusal of a REQUEST that was seen from this port.
	Nak struct {
		// Addr is the address that was asked for; the zero Addr if none was named.
		Addr netip.Addr
	}

	// Decline is the guest's DECLINE of an address that it found to be in use.
	Decline struct{ Addr netip.Addr }

	// Release is the guest's RELEASE of its address.
	Release struct{ Addr netip.Addr }

	// Inform is the guest's INFORM. Its ACK is not reported.
	Inform struct{}

	// ARP is the guest's ARP request or reply.
	ARP struct {
		// Sender is the address that the guest says is its own; 0.0.0.0 in a probe
		// (RFC 5227), which claims nothing.
		Sender netip.Addr
		// Gratuitous tells an announcement: it asks for the sender's own address.
		Gratuitous bool
	}

	// RARP is a reverse ARP frame from the guest's MAC address: hypervisors send one
	// when a guest begins to run here.
	RARP struct{}

	// ForeignMAC is a frame from the guest, of any protocol, whose Ethernet or ARP
	// sender is not the port's MAC address. Frames for a multicast group don't count.
	ForeignMAC struct{ MAC net.HardwareAddr }

	// ServerTraffic is what only a DHCP server sends, from the guest.
	ServerTraffic struct{}

	// Overrun says that the port's frames of a class came faster than they are
	// looked at, so that this class was not listened to for a while.
	Overrun struct {
		Class string
		// Discarded counts the frames of all classes that reached the port's socket
		// and were not looked at. What came while the class was not listened to is
		// not counted.
		Discarded uint64
	}

	// Gone says that the interface is gone; the port is forgotten.
	Gone struct{}

	// Probed says that an ADD got a lease in the guest's name, which the guest has
	// yet to take.
	Probed struct{ Lease dhcp.Lease }

	// Learned says that OVN has learned an address of the guest from its ARP, and that
	// the rest of the world has been told. The lease has the address, the port's
	// hardware address, and the network's gateway and server if they are known; nobody
	// has granted it, and it has no end.
	Learned struct{ Lease dhcp.Lease }

	// Tick says that State.Deadline has come.
	Tick struct{}
)

func (Discover) sighting()      {}
func (Request) sighting()       {}
func (Ack) sighting()           {}
func (Nak) sighting()           {}
func (Decline) sighting()       {}
func (Release) sighting()       {}
func (Inform) sighting()        {}
func (ARP) sighting()           {}
func (RARP) sighting()          {}
func (ForeignMAC) sighting()    {}
func (ServerTraffic) sighting() {}
func (Overrun) sighting()       {}
func (Gone) sighting()          {}
func (Probed) sighting()        {}
func (Learned) sighting()       {}
func (Tick) sighting()          {}
