// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"encoding/json"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// The way out is the host's device by which an attachment's network can be reached when its
// interface is gone: a bridge, or the master of a macvlan. It is kept with the lease.

// uplink is what the configurations of the plugins bridge and macvlan say of the way out.
type uplink struct {
	Type            string `json:"type"`
	Bridge          string `json:"bridge"`
	Master          string `json:"master"`
	LinkInContainer bool   `json:"linkInContainer"`
}

// parseUplink reads what a configuration says of the way out. In those of other plugins the
// same names may stand for anything.
func parseUplink(config []byte) uplink {
	var u uplink
	if json.Unmarshal(config, &u) != nil {
		return uplink{}
	}
	return u
}

// named is the way out that the configuration names, and whether it is a bridge that the
// interface is a port of; empty if it names none. To ask the kernel, for each pod of a
// burst, takes longer than the messages of DHCP.
func (u uplink) named() (device string, port bool) {
	switch {
	case u.Type == "bridge":
		return u.Bridge, true
	case u.Type == "macvlan" && !u.LinkInContainer:
		return u.Master, false
	}
	return "", false
}

// wayOut is the way out of an attachment, and whether it is a bridge that the interface is a
// port of; empty if there is none, or none that can be found: the lease is of use all the
// same.
func (s *Server) wayOut(c call, at place) (device string, port bool) {
	if device, port := c.uplink.named(); device != "" {
		return device, port
	}
	d, err := at.open(s.cfg.HostPrefix)
	if err != nil {
		s.cfg.Log.Warn("no way out is known for when the interface is gone", "key", c.key, "err", err)
		return "", false
	}
	defer d.Close()
	home, err := d.GetNetNsIdByFd(int(s.host.space))
	if err != nil || home < 0 || d.link.Attrs().NetNsID != home {
		return "", false // what it is on, if anything, is not the host's
	}
	return d.wayOut(s.host.Handle)
}

// wayOut is the way out, as the kernel tells, of a device that is on one of the host: the
// master of a macvlan, or the bridge that the other end of a veth pair is a port of.
func (d *device) wayOut(host *netlink.Handle) (name string, port bool) {
	attrs := d.link.Attrs()
	if attrs.ParentIndex == 0 {
		return "", false
	}
	below, err := host.LinkByIndex(attrs.ParentIndex)
	if err != nil {
		return "", false
	}
	switch d.link.Type() {
	case "macvlan":
		return below.Attrs().Name, false
	case "veth":
		master, err := host.LinkByIndex(below.Attrs().MasterIndex)
		if err == nil && master.Type() == "bridge" {
			return master.Attrs().Name, true
		}
	}
	return "", false
}

// checkBridge returns an error if frames that leave by a bridge don't come to where its ports
// are: with VLANs they would need the port's.
func checkBridge(device netlink.Link) error {
	if bridge, ok := device.(*netlink.Bridge); ok && bridge.VlanFiltering != nil && *bridge.VlanFiltering {
		return fmt.Errorf("%w: bridge %s has VLANs, and that of the port is not known", dhcp.ErrNoOtherWay, bridge.Name)
	}
	return nil
}
