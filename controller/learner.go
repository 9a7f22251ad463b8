// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// OVN records who has which address (table MAC_Binding) for router ports only.
// So a network on which OVN itself has to learn gets a router with one port on
// the switch, which hears the guests' ARP and does nothing else. It hears IPv6
// neighbor discovery too, since OVN allows that before any ACL; what it learns from
// it is removed.
const (
	// learnerNetwork has no address of any site's; a router port must have one.
	learnerNetwork = "0.0.0.1/0"
	// learnerMemory is how long OVN remembers what it was taught.
	learnerMemory = 5 * time.Minute

	// Priorities of the ACLs that keep the learner out of harm's way. They are
	// checked where frames leave the switch for it, and no other frame meets them.
	learnerDeafTo = 2000
	learnerIP     = 1999
)

// learns reports whether a network has a learner: where guests may choose their
// addresses, and where frames of virtual functions may pass the node unseen.
func (in *inputs) learns(network string) bool {
	if in.deaf {
		return false
	}
	for _, n := range in.rulings.networks[network] {
		switch cmp.Or(n.conf.Learn, in.learn) {
		case podnet.LearnAll:
			return true
		case podnet.LearnAuto:
			if n.device {
				return true
			}
		}
	}
	return false
}

// learnerRows are the learner of a network. It doesn't listen to the ports that
// flood it at the moment: they would fill its table.
func (in *inputs) learnerRows(network string) nbdb.Rows {
	router, port, onSwitch := podnet.LearnerName(network), podnet.LearnerPortName(network), podnet.LearnerSwitchPortName(network)
	ids := map[string]string{in.idPrefix + "network": network}
	to := fmt.Sprintf("outport == %q", onSwitch)
	rows := nbdb.Rows{
		Routers: []nbdb.Router{{
			Name:        router,
			Options:     map[string]string{"mac_binding_age_threshold": strconv.Itoa(int(learnerMemory.Seconds()))},
			ExternalIDs: ids,
		}},
		RouterPorts: []nbdb.RouterPort{{
			Name:        port,
			Router:      router,
			MAC:         learnerMAC(network).String(),
			Networks:    []string{learnerNetwork},
			ExternalIDs: ids,
		}},
		// Nothing is routed.
		RouterPolicies: []nbdb.RouterPolicy{{
			Router:      router,
			Priority:    1,
			Match:       "1",
			Action:      "drop",
			ExternalIDs: map[string]string{nbdb.OwnIDKey: router + ":drop"},
		}},
		Ports: []nbdb.Port{{
			Name:        onSwitch,
			Switch:      podnet.SwitchName(network),
			Type:        "router",
			Addresses:   []string{"router"},
			Options:     map[string]string{"router-port": port},
			ExternalIDs: ids,
		}},
	}
	deaf := func(name string, priority int, match string) {
		rows.ACLs = append(rows.ACLs, nbdb.ACL{
			On:          podnet.SwitchName(network),
			Direction:   "to-lport",
			Priority:    priority,
			Match:       to + " && " + match,
			Action:      "drop",
			ExternalIDs: map[string]string{nbdb.OwnIDKey: router + ":" + name},
		})
	}
	deaf("physical", learnerDeafTo, fmt.Sprintf("inport == %q", podnet.LocalnetPortName(network)))
	deaf("ip", learnerIP, "ip")
	for _, name := range slices.Sorted(maps.Keys(in.flooding[network])) {
		deaf("port:"+name, learnerDeafTo, fmt.Sprintf("inport == %q", name))
	}
	return rows
}

// learnerMAC is the address of a learner. Nobody ever sees it: what it would
// send is an answer for learnerNetwork, or dropped.
func learnerMAC(network string) net.HardwareAddr {
	return podnet.DeriveMAC("learner", "", "", network)
}
