// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Config is the client that asks for a lease.
type Config struct {
	// HardwareAddr is the client's Ethernet address. It is the source of all
	// frames too, so it should be the interface's. Required.
	HardwareAddr net.HardwareAddr
	// ClientID is option 61, its type byte included; nil stands for 0x01 and
	// HardwareAddr (RFC 2132, 9.14).
	ClientID []byte
	// HostName is option 12, which servers register the lease under. Optional.
	HostName string
	// RequestedAddr is the address to ask for (option 50), one that the client
	// had before. The server may give another. Optional.
	RequestedAddr netip.Addr
	// Options are further options to send, by their code. The protocol's own,
	// and those with a field here, can't be among them.
	Options map[uint8][]byte
	// Request is the parameter request list (option 55), which is not sent if it is
	// empty (RFC 2132, 9.8); nil stands for all that a Lease has a field for.
	Request []uint8
	// Selected, if set, is told of each offer before it is requested, so that a
	// lease can be given back even if the process ends before the server's
	// answer is here. Its error ends the Acquire.
	Selected func(offer Lease) error
	// Denied, if set, is told that what was requested last is not the client's to use or
	// to give back: the server has refused it, or somebody else uses it. Its error ends
	// the Acquire.
	Denied func() error
	// Probe has the client ask by ARP whether somebody else uses the address
	// before it takes it, and decline it then (RFC 2131, 4.4.1; RFC 5227). It takes
	// half a second. A port that OVN has pinned to an address drops the question.
	Probe bool

	// Unicast allows servers to send their answers to the first try of each message to
	// the client alone, so that they don't go to all stations of the network (RFC 2131,
	// 4.1). It is of no use where something between, such as a port that OVN has pinned
	// to an address, drops what goes to another one: the second try is for broadcasts,
	// as all are without Unicast.
	Unicast bool

	// former is the address of a lease that may still be valid: the client begins
	// in INIT-REBOOT with it.
	former netip.Prefix
}

// Check returns what can't be sent, or would break the protocol. Acquire checks it
// too.
func (c Config) Check() error {
	if len(c.HardwareAddr) != 6 || c.HardwareAddr[0]&1 != 0 {
		return fmt.Errorf("hardware address %q is not a unicast Ethernet address", c.HardwareAddr)
	}
	if n := len(c.ClientID); c.ClientID != nil && (n < 2 || n > 255) {
		return fmt.Errorf("client id has %d bytes, not 2 to 255", n)
	}
	if c.HostName != "" && !validName(c.HostName) {
		return fmt.Errorf("host name %q is not a domain name", c.HostName)
	}
	if c.RequestedAddr.IsValid() && !isHost(c.RequestedAddr) {
		return fmt.Errorf("requested address %s is not a host's IPv4 address", c.RequestedAddr)
	}
	if len(c.Request) > 255 {
		return errors.New("more than 255 options requested")
	}
	for code, value := range c.Options {
		switch code {
		case dhcpv4.OptionPad.Code(), dhcpv4.OptionEnd.Code(), dhcpv4.OptionOptionOverload.Code(),
			dhcpv4.OptionDHCPMessageType.Code(), dhcpv4.OptionServerIdentifier.Code(), dhcpv4.OptionRequestedIPAddress.Code(),
			dhcpv4.OptionParameterRequestList.Code(), dhcpv4.OptionHostName.Code(), dhcpv4.OptionClientIdentifier.Code():
			return fmt.Errorf("option %d can't be set this way", code)
		}
		if len(value) > 255 {
			return fmt.Errorf("option %d has %d bytes, more than 255", code, len(value))
		}
	}
	return nil
}

// Provide sets the option with a code to a value: in its field, if it has one, else among
// Options. An empty value changes nothing.
func (c *Config) Provide(code uint8, value string) {
	switch {
	case value == "":
	case code == dhcpv4.OptionHostName.Code():
		c.HostName = value
	case code == dhcpv4.OptionClientIdentifier.Code():
		c.ClientID = []byte(value)
	default:
		if c.Options == nil {
			c.Options = map[uint8][]byte{}
		}
		c.Options[code] = []byte(value)
	}
}

// withDefaults returns c with the values that nil stands for.
func (c Config) withDefaults() Config {
	if c.ClientID == nil {
		c.ClientID = append([]byte{1}, c.HardwareAddr...)
	}
	if c.Request == nil {
		c.Request = DefaultRequest()
	}
	return c
}

// DefaultRequest is the parameter request list of a client that does not set
// its own: the options that a Lease has a field for.
func DefaultRequest() []uint8 {
	// RFC 3442: the classless routes come before what they take the place of.
	return []uint8{
		dhcpv4.OptionSubnetMask.Code(), dhcpv4.OptionClasslessStaticRoute.Code(), optionClasslessRoutesMS.Code(),
		dhcpv4.OptionRouter.Code(), dhcpv4.OptionStaticRoutingTable.Code(), dhcpv4.OptionDomainNameServer.Code(),
		dhcpv4.OptionDomainName.Code(), dhcpv4.OptionDNSDomainSearchList.Code(), dhcpv4.OptionInterfaceMTU.Code(),
		dhcpv4.OptionRenewTimeValue.Code(), dhcpv4.OptionRebindingTimeValue.Code(),
	}
}

// RequestList is the parameter request list of a client that asks for more than others, or
// instead of what they ask for: each code once, and not nil even without any.
func RequestList(skipDefault bool, codes ...uint8) []uint8 {
	list := []uint8{}
	if !skipDefault {
		list = DefaultRequest()
	}
	for _, code := range codes {
		if !slices.Contains(list, code) {
			list = append(list, code)
		}
	}
	return list
}
