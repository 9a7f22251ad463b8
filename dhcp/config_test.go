// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigCheck(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string // part of the error; empty if it is good
	}{
		"least":             {func(*Config) {}, ""},
		"all":               {func(c *Config) { c.HostName, c.ClientID, c.RequestedAddr = "web-0", []byte("\x00id"), leasedIP }, ""},
		"further option":    {func(c *Config) { c.Options = map[uint8][]byte{60: []byte("vendor")} }, ""},
		"no address":        {func(c *Config) { c.HardwareAddr = nil }, "hardware address"},
		"InfiniBand":        {func(c *Config) { c.HardwareAddr = make(net.HardwareAddr, 20) }, "hardware address"},
		"group address":     {func(c *Config) { c.HardwareAddr = etherBroadcast() }, "hardware address"},
		"client id empty":   {func(c *Config) { c.ClientID = []byte{} }, "client id"},
		"client id long":    {func(c *Config) { c.ClientID = make([]byte, 256) }, "client id"},
		"host name":         {func(c *Config) { c.HostName = "web 0" }, "host name"},
		"requested IPv6":    {func(c *Config) { c.RequestedAddr = netip.IPv6LinkLocalAllNodes() }, "requested address"},
		"requested nothing": {func(c *Config) { c.RequestedAddr = netip.IPv4Unspecified() }, "requested address"},
		"message type":      {func(c *Config) { c.Options = map[uint8][]byte{53: {1}} }, "option 53"},
		"host name twice":   {func(c *Config) { c.Options = map[uint8][]byte{12: []byte("x")} }, "option 12"},
		"option long":       {func(c *Config) { c.Options = map[uint8][]byte{60: make([]byte, 256)} }, "option 60"},
		"requests too many": {func(c *Config) { c.Request = make([]uint8, 256) }, "255 options"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{HardwareAddr: clientHW}
			test.change(&c)
			err := c.Check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestConfigDefaults(t *testing.T) {
	c := Config{HardwareAddr: clientHW}.withDefaults()
	if diff := cmp.Diff(append([]byte{1}, clientHW...), c.ClientID); diff != "" {
		t.Errorf("client id (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint8{1, 121, 249, 3, 33, 6, 15, 119, 26, 58, 59}, c.Request); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}
