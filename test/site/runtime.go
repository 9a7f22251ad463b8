// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
)

// Call is one call of the CNI plugin as a container runtime makes it.
type Call struct {
	Command, ContainerID, Netns, IfName, Args string
	// Config is the network configuration.
	Config []byte
}

// Attach is the call for a pod's first attachment to a network. Its container
// is the netns.
func (s *Site) Attach(command string, pod *corev1.Pod, network Network, netns string) Call {
	return Call{
		Command:     command,
		ContainerID: netns,
		Netns:       s.Lab.NetnsPath(netns),
		IfName:      "net1",
		Args:        fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s;K8S_POD_INFRA_CONTAINER_ID=%s", pod.Namespace, pod.Name, pod.UID, netns),
		Config:      network.Conf(),
	}
}

// CNI runs the plugin on the i-th node and returns its result, nil for a
// command that has none. The plugin's own errors are of type *types.Error.
func (s *Site) CNI(ctx context.Context, i int, c Call) (*types100.Result, error) {
	cmd := s.Lab.Nodes[i].Command(ctx, s.binary("ovn-k8s-cni-overlay"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+c.Command, "CNI_CONTAINERID="+c.ContainerID, "CNI_NETNS="+c.Netns,
		"CNI_IFNAME="+c.IfName, "CNI_ARGS="+c.Args, "CNI_PATH="+s.options.Bin)
	cmd.Stdin = bytes.NewReader(c.Config)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		var cniError types.Error
		if json.Unmarshal(stdout.Bytes(), &cniError) == nil && cniError.Code != 0 {
			return nil, &cniError
		}
		return nil, fmt.Errorf("%s %s: %w: %s%s", cmd, c.Command, err, stdout.Bytes(), stderr.Bytes())
	}
	if stdout.Len() == 0 {
		return nil, nil
	}
	result, err := types100.NewResult(stdout.Bytes())
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w: %s", c.Command, err, stdout.Bytes())
	}
	return types100.GetResult(result)
}
