// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

// Multus is the Multus CNI plugin on a node, as the container runtime calls it.
// The pods' default network is a bridge of the node's own with addresses in
// 10.244.0.0/24.
type Multus struct {
	node   *lab.Node
	path   string // of the plugin
	bin    string // its binDir and the further folders
	config []byte
}

// NewMultus installs Multus on a node that is connected. Multus acts as the
// user of a kubeconfig, and finds the plugins in pluginDir and in the folders
// of Options.Bin.
func (c *ControlPlane) NewMultus(node *lab.Node, kubeconfig, pluginDir string) (*Multus, error) {
	path, err := find(c.bin, "multus")
	if err != nil {
		return nil, err
	}
	dir := c.file("multus-" + node.Name)
	if err := os.MkdirAll(filepath.Join(dir, "conf"), 0o755); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "multus",
		"type":       "multus",
		"kubeconfig": kubeconfig,
		"confDir":    filepath.Join(dir, "conf"),
		"cniDir":     filepath.Join(dir, "cache"),
		"binDir":     pluginDir,
		"logFile":    c.file("multus-" + node.Name + ".log"),
		"logLevel":   "verbose",
		"delegates": []any{map[string]any{
			"cniVersion": "1.0.0",
			"name":       "default-network",
			"type":       "bridge",
			"bridge":     "cni0",
			"ipam": map[string]any{
				"type": "host-local", "subnet": "10.244.0.0/24", "dataDir": filepath.Join(dir, "addresses"),
			},
		}},
	})
	return &Multus{node: node, path: path, bin: pluginDir + string(filepath.ListSeparator) + c.bin, config: config}, err
}

// A Sandbox is what a container runtime makes for a pod, as CNI knows it.
type Sandbox struct {
	Pod *corev1.Pod
	// ContainerID names the sandbox.
	ContainerID string
	// Netns is the path of its network namespace.
	Netns string
}

// Add attaches the sandbox to the default network, as eth0, and to those of the
// pod's annotation k8s.v1.cni.cncf.io/networks, net1 and so on. The result is
// the default network's; what the other networks gave is in the pod's
// annotation k8s.v1.cni.cncf.io/network-status.
func (m *Multus) Add(ctx context.Context, s Sandbox) (*types100.Result, error) {
	out, err := m.call(ctx, "ADD", s)
	if err != nil {
		return nil, err
	}
	result, err := types100.NewResult(out)
	if err != nil {
		return nil, fmt.Errorf("result of multus ADD: %w: %s", err, out)
	}
	return types100.GetResult(result)
}

// Del undoes Add.
func (m *Multus) Del(ctx context.Context, s Sandbox) error {
	_, err := m.call(ctx, "DEL", s)
	return err
}

// call runs the plugin and returns its output. An error that the plugin tells
// is of type *types.Error.
func (m *Multus) call(ctx context.Context, command string, s Sandbox) ([]byte, error) {
	cmd := m.node.Command(ctx, m.path)
	cmd.Env = append(cmd.Env,
		"CNI_COMMAND="+command, "CNI_CONTAINERID="+s.ContainerID, "CNI_NETNS="+s.Netns, "CNI_IFNAME=eth0", "CNI_PATH="+m.bin,
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s;K8S_POD_INFRA_CONTAINER_ID=%s",
			s.Pod.Namespace, s.Pod.Name, s.Pod.UID, s.ContainerID))
	cmd.Stdin = bytes.NewReader(m.config)
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	var cniError types.Error
	if json.Unmarshal(out, &cniError) == nil && cniError.Code != 0 {
		return nil, &cniError
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
	}
	return nil, fmt.Errorf("multus %s: %w", command, err)
}
