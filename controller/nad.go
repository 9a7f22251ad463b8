// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// resourceAnnotation names the device plugin's resource that an attachment gets a
// device of, as multus reads it.
const resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"

// nad is what matters of a NAD. It is not changed once made.
type nad struct {
	source  *unstructured.Unstructured
	name    string // namespace/name
	created time.Time
	config  string
	// device is true where attachments have devices of a device plugin.
	device bool
	// ours is false for the NADs of other programs.
	ours bool
	conf *podnet.NetConf // nil when invalid
	err  error           // why it is invalid
}

func parseNAD(u *unstructured.Unstructured, pluginType string) *nad {
	n := &nad{source: u, name: u.GetNamespace() + "/" + u.GetName(), created: u.GetCreationTimestamp().Time}
	n.device = u.GetAnnotations()[resourceAnnotation] != ""
	n.config, _, _ = unstructured.NestedString(u.Object, "spec", "config")
	var plugin struct {
		Type string `json:"type"`
	}
	if json.Unmarshal([]byte(n.config), &plugin) != nil || plugin.Type != pluginType || !podnet.IsDHCP([]byte(n.config)) {
		return n
	}
	n.ours = true
	conf, err := podnet.ParseNetConf([]byte(n.config))
	switch {
	case err != nil:
		n.err = err
	case conf.NADName != n.name:
		n.err = fmt.Errorf("network configuration: netAttachDefName: %q is not this NetworkAttachmentDefinition, %s", conf.NADName, n.name)
	default:
		n.conf = conf
	}
	return n
}

// same reports whether the NADs mean the same.
func (n *nad) same(other *nad) bool {
	return n.config == other.config && n.device == other.device && n.created.Equal(other.created) &&
		maps.Equal(n.source.GetLabels(), other.source.GetLabels()) &&
		reflect.DeepEqual(n.source.GetOwnerReferences(), other.source.GetOwnerReferences())
}

// ruling is whether a NAD of ours is served, and if not, why.
type ruling struct {
	network string          // the network's name, "" when the NAD is invalid
	conf    *podnet.NetConf // nil when it is not served
	reason  string
	message string
}

// rulings are those on all NADs, and the networks that follow from them.
type rulings struct {
	nads map[string]ruling // by NAD, those of ours only
	// networks has the NADs that are served by their network's name, the one
	// that decides first; none for a network whose NADs are all refused.
	networks map[string][]*nad
	byPrefix map[string]*nad // served NADs by the prefix of their ports' names
	bySwitch map[string]*nad // the first served NAD of each switch
}

// networks are those that are there.
type networks interface {
	// incumbent reports whether a network that is there is made of this NAD.
	incumbent(n *nad) bool
	// turnsOver reports whether a network that pods are on would become another
	// one by this NAD.
	turnsOver(n *nad) bool
}

// rule decides about all NADs. Of two that are in each other's way, the one
// whose network is there stays, else the one that was created first.
func rule(nads map[string]*nad, there networks) *rulings {
	r := &rulings{nads: map[string]ruling{}, networks: map[string][]*nad{}, byPrefix: map[string]*nad{}, bySwitch: map[string]*nad{}}
	for _, n := range slices.SortedFunc(maps.Values(nads), func(a, b *nad) int {
		if aStays, bStays := there.incumbent(a), there.incumbent(b); aStays != bStays {
			return map[bool]int{true: -1, false: 1}[aStays]
		}
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	}) {
		switch {
		case !n.ours:
		case n.err != nil:
			r.nads[n.name] = ruling{reason: ReasonInvalidConfig, message: n.err.Error()}
		default:
			r.nads[n.name] = r.add(n, there)
		}
	}
	return r
}

// add rules on a valid NAD after those that have a better right.
func (r *rulings) add(n *nad, there networks) ruling {
	name := n.conf.Name
	if _, known := r.networks[name]; !known {
		r.networks[name] = nil
	}
	out := ruling{network: name}
	prefix, switchName := podnet.Prefix(n.name), podnet.SwitchName(name)
	twin, first := r.byPrefix[prefix], r.bySwitch[switchName]
	switch {
	case twin != nil:
		out.reason = ReasonNameCollision
		out.message = fmt.Sprintf("ports would have the same names as those of NetworkAttachmentDefinition %s", twin.name)
	case first != nil && first.conf.Name != name:
		out.reason = ReasonNameCollision
		out.message = fmt.Sprintf("network %q would have the same switch as network %q of NetworkAttachmentDefinition %s", name, first.conf.Name, first.name)
	case first != nil && disagreement(n.conf, first.conf) != "":
		out.reason = ReasonConflictingConfig
		out.message = fmt.Sprintf("network %q is another one in NetworkAttachmentDefinition %s: %s", name, first.name, disagreement(n.conf, first.conf))
	case first == nil && there.turnsOver(n):
		out.reason = ReasonConflictingConfig
		out.message = fmt.Sprintf("network %q has pods, and is on another physical network or VLAN than this: it stays so until they are gone", name)
	default:
		out.conf = n.conf
		r.byPrefix[prefix] = n
		r.bySwitch[switchName] = cmp.Or(first, n)
		r.networks[name] = append(r.networks[name], n)
	}
	return out
}

// disagreement names what two configurations of one network differ in.
func disagreement(a, b *podnet.NetConf) string {
	switch {
	case a.PhysicalNetworkName != b.PhysicalNetworkName:
		return fmt.Sprintf("physicalNetworkName is %q here and %q there", a.PhysicalNetworkName, b.PhysicalNetworkName)
	case a.VLANID != b.VLANID:
		return fmt.Sprintf("vlanID is %d here and %d there", a.VLANID, b.VLANID)
	case a.MTU != b.MTU:
		return fmt.Sprintf("mtu is %d here and %d there", a.MTU, b.MTU)
	case a.Learn != b.Learn:
		return fmt.Sprintf("learn is %q here and %q there", a.Learn, b.Learn)
	case a.AllowDHCPServer != b.AllowDHCPServer:
		return fmt.Sprintf("allowDHCPServer is %v here and %v there", a.AllowDHCPServer, b.AllowDHCPServer)
	}
	return ""
}
