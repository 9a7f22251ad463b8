// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultMTU is the MTU of a network whose configuration names none.
const DefaultMTU = 1500

// minMTU is the least MTU over which every IPv4 host can be reached (RFC 791),
// which is also the least that DHCP messages are sized for (RFC 2131, 2).
const minMTU = 576

// maxVLAN is the highest VLAN id that can be used (IEEE 802.1Q).
const maxVLAN = 4094

// NetConf is the CNI configuration of a network, as a NAD's spec.config holds
// it and as the plugin gets it on stdin.
type NetConf struct {
	types.NetConf

	// NADName is the "namespace/name" of the NAD that this is from.
	NADName  string `json:"netAttachDefName"`
	Topology string `json:"topology"`
	Role     string `json:"role,omitempty"`
	// PhysicalNetworkName is the name under which bridge mappings know the
	// physical network; empty means the network's own name.
	PhysicalNetworkName string `json:"physicalNetworkName,omitempty"`
	// VLANID is the tag on the physical network; 0 is untagged.
	VLANID             int    `json:"vlanID,omitempty"`
	MTU                int    `json:"mtu,omitempty"`
	Subnets            string `json:"subnets,omitempty"`
	ExcludeSubnets     string `json:"excludeSubnets,omitempty"`
	AllowPersistentIPs bool   `json:"allowPersistentIPs,omitempty"`
	// DeviceID is the PCI address of a VF that multus passes in; empty for none.
	DeviceID string `json:"deviceID,omitempty"`
	// Learn is from what else than its own lease a port's address is learned:
	// one of the Learn constants, or empty for the controller's default.
	Learn string `json:"learn,omitempty"`
	// AllowDHCPServer lets pods on the network be DHCP servers.
	AllowDHCPServer bool `json:"allowDHCPServer,omitempty"`
	DHCP            IPAM `json:"-"`
}

// From what the addresses of virtual machines are learned after the CNI ADD.
const (
	// LearnOff is from nothing.
	LearnOff = "off"
	// LearnAuto is from the DHCP exchanges that the node sees, and for ports whose
	// frames it does not see, from the ARP that OVN sees.
	LearnAuto = "auto"
	// LearnAll is from ARP too, so that a guest may choose an address itself.
	LearnAll = "all"
)

// ValidLearn reports whether s is one of the Learn constants.
func ValidLearn(s string) bool { return s == LearnOff || s == LearnAuto || s == LearnAll }

// IPAM is the ipam object of a network configuration, in the terms of the CNI
// dhcp plugin.
type IPAM struct {
	Type    string          `json:"type"`
	Provide []ProvideOption `json:"provide,omitempty"`
	Request []RequestOption `json:"request,omitempty"`
	// Priority is the metric of the routes that a lease puts into the pod; 0 leaves
	// it to the kernel.
	Priority int `json:"priority,omitempty"`
}

// ProvideOption is a DHCP option that the client sends: the value of a key of
// CNI_ARGS, or, if the call has no such key, a literal value. Without either it is
// not sent.
type ProvideOption struct {
	Option  string `json:"option"`
	Value   string `json:"value,omitempty"`
	FromArg string `json:"fromArg,omitempty"`
}

// RequestOption is a DHCP option that the client asks for in its parameter
// request list. SkipDefault leaves the default list out.
type RequestOption struct {
	Option      string `json:"option,omitempty"`
	SkipDefault bool   `json:"skipDefault,omitempty"`
}

// ParseNetConf decodes and validates the configuration of a localnet network
// with ipam.type dhcp. Its error names each wrong field and its value. Fields
// that it does not know are ignored.
func ParseNetConf(config []byte) (*NetConf, error) {
	conf := &NetConf{}
	if err := json.Unmarshal(config, conf); err != nil {
		return nil, fmt.Errorf("network configuration is not valid JSON for this plugin: %w", err)
	}
	ipam := struct {
		IPAM IPAM `json:"ipam"`
	}{}
	if err := json.Unmarshal(config, &ipam); err != nil {
		return nil, fmt.Errorf("field ipam of the network configuration: %w", err)
	}
	conf.DHCP = ipam.IPAM
	if conf.MTU == 0 {
		conf.MTU = DefaultMTU
	}
	if conf.PhysicalNetworkName == "" {
		conf.PhysicalNetworkName = conf.Name
	}
	if err := conf.validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("network configuration: %w", err)
	}
	return conf, nil
}

// IsDHCP reports whether a configuration, valid or not, is meant for this
// product: ipam.type is dhcp. Others are other programs' business.
func IsDHCP(config []byte) bool {
	var c struct {
		Topology string `json:"topology"`
		IPAM     struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	return json.Unmarshal(config, &c) == nil && c.IPAM.Type == IPAMTypeDHCP && c.Topology != ""
}

func (c *NetConf) validate() field.ErrorList {
	var errs field.ErrorList
	bad := func(name string, value any, why string) {
		errs = append(errs, field.Invalid(field.NewPath(name), value, why))
	}
	if err := utils.ValidateNetworkName(c.Name); err != nil {
		bad("name", c.Name, err.Details)
	}
	if ns, name, ok := strings.Cut(c.NADName, "/"); !ok || ns == "" || name == "" || strings.Contains(name, "/") {
		bad("netAttachDefName", c.NADName, "must be namespace/name of the NetworkAttachmentDefinition")
	}
	if c.Topology != TopologyLocalnet {
		bad("topology", c.Topology, "ipam.type dhcp is for topology localnet only")
	}
	if c.Role != "" && c.Role != RoleSecondary {
		bad("role", c.Role, "ipam.type dhcp is for role secondary only")
	}
	if c.DHCP.Type != IPAMTypeDHCP {
		bad("ipam.type", c.DHCP.Type, "this plugin serves ipam.type dhcp only")
	}
	if c.Subnets != "" {
		bad("subnets", c.Subnets, "must be empty with ipam.type dhcp: addresses come from the DHCP server")
	}
	if c.ExcludeSubnets != "" {
		bad("excludeSubnets", c.ExcludeSubnets, "must be empty with ipam.type dhcp: addresses come from the DHCP server")
	}
	if c.AllowPersistentIPs {
		bad("allowPersistentIPs", true, "can't be combined with ipam.type dhcp: the DHCP server decides about addresses")
	}
	if c.DeviceID != "" && !IsPCIAddress(c.DeviceID) {
		bad("deviceID", c.DeviceID, "must be the PCI address of a VF, as 0000:3b:10.2")
	}
	if c.Learn != "" && !ValidLearn(c.Learn) {
		bad("learn", c.Learn, "must be off, auto or all")
	}
	if strings.ContainsAny(c.PhysicalNetworkName, ",: ") {
		bad("physicalNetworkName", c.PhysicalNetworkName, "must not contain ',', ':' or a space")
	}
	if c.VLANID < 0 || c.VLANID > maxVLAN {
		bad("vlanID", c.VLANID, fmt.Sprintf("must be between 0 (untagged) and %d", maxVLAN))
	}
	if c.MTU < minMTU || c.MTU > 65535 {
		bad("mtu", c.MTU, fmt.Sprintf("must be between %d and 65535", minMTU))
	}
	return append(errs, c.DHCP.validate(field.NewPath("ipam"))...)
}

// IsPCIAddress reports whether s is the address of a PCI function as the kernel
// writes it: domain:bus:device.function in lower case.
func IsPCIAddress(s string) bool {
	var domain, bus, device, function uint32
	if n, err := fmt.Sscanf(s, "%x:%02x:%02x.%1x", &domain, &bus, &device, &function); n != 4 || err != nil {
		return false
	}
	return device < 32 && function < 8 && s == fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

func (i *IPAM) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for n, p := range i.Provide {
		at := path.Child("provide").Index(n)
		if _, err := OptionCode(p.Option); err != nil {
			errs = append(errs, field.Invalid(at.Child("option"), p.Option, err.Error()))
		}
		if len(p.Value) > maxOptionLen {
			errs = append(errs, field.TooLong(at.Child("value"), p.Value, maxOptionLen))
		}
	}
	for n, r := range i.Request {
		if _, err := OptionCode(r.Option); err != nil && r.Option != "" {
			errs = append(errs, field.Invalid(path.Child("request").Index(n).Child("option"), r.Option, err.Error()))
		}
	}
	if i.Priority < 0 || int64(i.Priority) > math.MaxUint32 {
		errs = append(errs, field.Invalid(path.Child("priority"), i.Priority, fmt.Sprintf("must be between 0 and %d, the highest metric of a route", uint32(math.MaxUint32))))
	}
	return errs
}
