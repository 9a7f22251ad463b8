// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	ktypes "k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// call is one CNI call as its environment gives it, checked.
type call struct {
	command     string
	containerID string
	netns       string
	ifname      string
	cniArgs     string
	args        map[string]string
	config      []byte
	device      wire.DeviceInfo
}

// parseCall checks what every command needs: that names can be names. What only
// ADD needs is checked there, since DEL has to work with less.
func parseCall(r wire.Request) (call, error) {
	c := call{
		command:     r.Env["CNI_COMMAND"],
		containerID: r.Env["CNI_CONTAINERID"],
		netns:       r.Env["CNI_NETNS"],
		ifname:      r.Env["CNI_IFNAME"],
		cniArgs:     r.Env["CNI_ARGS"],
		config:      r.Config,
		device:      r.DeviceInfo,
	}
	if c.command == "STATUS" || c.command == "GC" {
		return c, nil
	}
	if err := utils.ValidateContainerID(c.containerID); err != nil {
		return c, fail(err.Code, fmt.Errorf("CNI_CONTAINERID %q: %s", c.containerID, text(err)))
	}
	if err := utils.ValidateInterfaceName(c.ifname); err != nil {
		return c, fail(err.Code, fmt.Errorf("CNI_IFNAME %q: %s", c.ifname, text(err)))
	}
	var err error
	if c.args, err = parseArgs(r.Env["CNI_ARGS"]); err != nil {
		return c, fail(types.ErrInvalidEnvironmentVariables, err)
	}
	return c, nil
}

func text(err *types.Error) string {
	return strings.TrimSuffix(err.Msg+": "+err.Details, ": ")
}

// parseArgs parses CNI_ARGS: KEY=VALUE pairs with ';' between them.
func parseArgs(s string) (map[string]string, error) {
	args := map[string]string{}
	if s == "" {
		return args, nil
	}
	for pair := range strings.SplitSeq(s, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("CNI_ARGS: %q is not KEY=VALUE", pair)
		}
		args[key] = value
	}
	return args, nil
}

// podName is the pod that CNI_ARGS names. The UID may be missing; some runtimes
// don't pass it.
func (c call) podName() (ktypes.NamespacedName, ktypes.UID, error) {
	name := ktypes.NamespacedName{Namespace: c.args["K8S_POD_NAMESPACE"], Name: c.args["K8S_POD_NAME"]}
	for key, value := range map[string]string{"K8S_POD_NAMESPACE": name.Namespace, "K8S_POD_NAME": name.Name} {
		if value == "" {
			return name, "", fail(types.ErrInvalidEnvironmentVariables, fmt.Errorf("CNI_ARGS: %s is missing", key))
		}
	}
	return name, ktypes.UID(c.args["K8S_POD_UID"]), nil
}

// netConf is the call's network configuration, of a network that the server
// serves.
func (s *Server) netConf(c call) (*podnet.NetConf, error) {
	conf, err := podnet.ParseNetConf(c.config)
	if err != nil {
		return nil, fail(types.ErrInvalidNetworkConfig, err)
	}
	if conf.Type != s.cfg.PluginType {
		return nil, fail(types.ErrInvalidNetworkConfig, fmt.Errorf("network configuration: type: Invalid value: %q: this node serves type %q", conf.Type, s.cfg.PluginType))
	}
	return conf, nil
}
