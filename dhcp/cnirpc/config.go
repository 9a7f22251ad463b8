// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/utils"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

const (
	// maxClientID is how much of a client id's text is sent.
	maxClientID = 254
	// maxKey keeps the names of the records' files, and what may be added to them,
	// below the 255 bytes of a file name.
	maxKey = 200
)

// netConf is the part of the calling plugin's network configuration that is for DHCP.
type netConf struct {
	Name string `json:"name"`
	IPAM *ipam  `json:"ipam"`
}

type ipam struct {
	Provide []provideOption `json:"provide"`
	Request []requestOption `json:"request"`
	// Priority is the metric of the routes; 0 leaves it to the kernel.
	Priority int `json:"priority"`
}

// provideOption is an option to send: a literal value, or that of a key in CNI_ARGS,
// which comes first. One that has neither is not sent.
type provideOption struct {
	Option  string `json:"option"`
	Value   string `json:"value"`
	FromArg string `json:"fromArg"`
}

// requestOption is an option to ask for. SkipDefault leaves out those that are asked
// for anyway.
type requestOption struct {
	SkipDefault bool   `json:"skipDefault"`
	Option      string `json:"option"`
}

// call is what a call is about.
type call struct {
	conf   netConf
	uplink uplink
	// key is the attachment's, in the records.
	key string
	// id is the text of the client id.
	id            string
	netns, ifname string
	args          string
}

// parseCall checks what both calls need.
func parseCall(args *skel.CmdArgs) (call, error) {
	var conf netConf
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return call{}, fmt.Errorf("network configuration: %w", err)
	}
	if conf.IPAM == nil {
		return call{}, fmt.Errorf("network configuration %q has no ipam", conf.Name)
	}
	// They become parts of file names.
	if err := utils.ValidateContainerID(args.ContainerID); err != nil {
		return call{}, err
	}
	if err := utils.ValidateNetworkName(conf.Name); err != nil {
		return call{}, err
	}
	if err := utils.ValidateInterfaceName(args.IfName); err != nil {
		return call{}, err
	}
	id := args.ContainerID + "/" + conf.Name + "/" + args.IfName
	return call{conf: conf, uplink: parseUplink(args.StdinData), key: keyOf(id), id: id, netns: args.Netns, ifname: args.IfName, args: args.Args}, nil
}

// keyOf is an attachment's name in the records: as people know it, if it is not too
// long.
func keyOf(id string) string {
	if len(url.PathEscape(id)) <= maxKey {
		return id
	}
	hash := sha256.Sum256([]byte(id))
	return hex.EncodeToString(hash[:])
}

func (c call) hasNetns() bool { return filepath.IsAbs(c.netns) }

// client is the DHCP client of the attachment, but for its hardware address.
func (c call) client() (dhcp.Config, error) {
	cfg := dhcp.Config{
		ClientID: append([]byte{0}, c.id[:min(len(c.id), maxClientID)]...), // type 0: not a hardware address
		Unicast:  true,
	}
	args := parseArgs(c.args)
	for i, p := range c.conf.IPAM.Provide {
		code, err := optionCode(p.Option)
		if err != nil {
			return cfg, fmt.Errorf("ipam.provide[%d]: %w", i, err)
		}
		value := p.Value
		if fromArg, ok := args[p.FromArg]; ok {
			value = fromArg
		}
		cfg.Provide(code, value)
	}
	var err error
	cfg.Request, err = requestList(c.conf.IPAM.Request)
	return cfg, err
}

// requestList is what to ask for, maybe nothing.
func requestList(request []requestOption) ([]uint8, error) {
	var codes []uint8
	skipDefault := false
	for i, r := range request {
		skipDefault = skipDefault || r.SkipDefault
		if r.Option == "" {
			continue
		}
		code, err := optionCode(r.Option)
		if err != nil {
			return nil, fmt.Errorf("ipam.request[%d]: %w", i, err)
		}
		codes = append(codes, code)
	}
	return dhcp.RequestList(skipDefault, codes...), nil
}

// optionCode is the code of an option: of one of the names of dhcp-options(5) that the
// plugin knows, or a number.
func optionCode(option string) (uint8, error) {
	switch option {
	case "subnet-mask":
		return 1, nil
	case "routers":
		return 3, nil
	case "host-name":
		return 12, nil
	case "vendor-class-identifier":
		return 60, nil
	case "dhcp-client-identifier":
		return 61, nil
	case "user-class":
		return 77, nil
	}
	n, err := strconv.ParseUint(option, 10, 8)
	if err != nil || n == 0 || n == 255 {
		return 0, fmt.Errorf("option %q is neither the name nor the number (1 to 254) of a DHCP option", option)
	}
	return uint8(n), nil
}

// parseArgs parses CNI_ARGS; what is no pair is left out.
func parseArgs(s string) map[string]string {
	args := map[string]string{}
	for pair := range strings.SplitSeq(s, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			args[key] = value
		}
	}
	return args
}
