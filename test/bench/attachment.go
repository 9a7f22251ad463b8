// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// attachment is a pod's, as its annotation and its logical port have it.
type attachment struct{ pod, mac, addr string }

// attachmentOf is the n-th, of fewer than four million.
func attachmentOf(n int) attachment {
	return attachment{
		pod:  fmt.Sprintf("pod-%d", n),
		mac:  fmt.Sprintf("0a:58:00:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff),
		addr: fmt.Sprintf("10.%d.%d.%d", n>>14&0xff, n>>7&0x7f, n&0x7f+1),
	}
}

func (a attachment) port() string { return portName(a.pod) }

// announced is the annotation before there is a lease; the port has mac then.
func (a attachment) announced() string {
	return fmt.Sprintf(`{%q:{"ip_addresses":null,"mac_address":%q,"role":"secondary","ipam_mode":"dhcp"}}`, nadKey, a.mac)
}

// leased is the annotation when there is a lease; the port is pinned then.
func (a attachment) leased() string {
	return fmt.Sprintf(`{%q:{"ip_addresses":["%[2]s/8"],"mac_address":%[3]q,"gateway_ips":["10.255.255.254"],`+
		`"ip_address":"%[2]s/8","gateway_ip":"10.255.255.254","role":"secondary","ipam_mode":"dhcp"}}`, nadKey, a.addr, a.mac)
}

// pinned reports whether a port has the addresses of the lease.
func (a attachment) pinned(p logicalPort) bool { return p.has(a.mac + " " + a.addr) }
