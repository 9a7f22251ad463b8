// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire is what crosses the socket between the CNI shim, which a
// runtime starts for each call, and the node daemon: OVN-Kubernetes' protocol,
// a POST of JSON over HTTP on a unix socket. It needs the standard library and
// the CNI types only, so that the shim stays small.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/containernetworking/cni/pkg/types"
)

// OVNKubernetes is the plugin's name in OVN-Kubernetes.
const OVNKubernetes = "ovn-k8s-cni-overlay"

// SocketPath is where the node daemon of a plugin listens by default. Under
// another name than OVN-Kubernetes' a plugin stands beside that one.
func SocketPath(plugin string) string {
	if plugin == OVNKubernetes {
		return "/var/run/ovn-kubernetes/cni/ovn-cni-server.sock"
	}
	return "/var/run/" + plugin + "/cni-server.sock"
}

// maxResponse bounds what is read of an answer, in bytes.
const maxResponse = 4 << 20

// Request is one CNI call.
type Request struct {
	// Env holds the CNI_* variables.
	Env map[string]string `json:"env,omitempty"`
	// Config is the network configuration from stdin, base64 in JSON.
	Config []byte `json:"config,omitempty"`
	DeviceInfo
}

// DeviceInfo is what a device plugin says of a call's device, by the Device
// Information Specification of the Network Plumbing Working Group, as far as it is
// of use here.
type DeviceInfo struct {
	PCI *PCIDevice `json:"pci,omitempty"`
}

// PCIDevice says it of a PCI device: its address, and the interface on the node that
// stands for it.
type PCIDevice struct {
	Address     string `json:"pci-address,omitempty"`
	Representor string `json:"representor-device,omitempty"`
}

// Response is the answer to a call that succeeded.
type Response struct {
	// Result is the CNI result in the version that the configuration asks
	// for; it is empty for commands that have none.
	Result json.RawMessage `json:"Result,omitempty"`
}

// Call sends a request to the node daemon and returns the CNI result. The
// error is a *types.Error: the daemon's own, or code 11 (try again later) when
// the daemon can't be reached or the answer doesn't come through. When ctx
// ends the daemon undoes what it has done so far.
func Call(ctx context.Context, socket string, request Request) (json.RawMessage, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, types.NewError(types.ErrInternal, "CNI request can't be encoded", err.Error())
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://dummy/", bytes.NewReader(body))
	if err != nil {
		return nil, types.NewError(types.ErrInternal, "CNI request can't be made", err.Error())
	}
	post.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(post)
	if err != nil {
		return nil, unreachable(socket, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse))
	if err != nil {
		return nil, unreachable(socket, err)
	}
	return parse(answer.StatusCode, data)
}

func unreachable(socket string, err error) *types.Error {
	return types.NewError(types.ErrTryAgainLater,
		fmt.Sprintf("the node daemon does not answer on %s (is ovn-dhcp-ipam node running?)", socket), err.Error())
}

func parse(status int, data []byte) (json.RawMessage, error) {
	if status == http.StatusOK {
		var r Response
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "the node daemon's answer can't be read", err.Error())
		}
		return r.Result, nil
	}
	var cniError types.Error
	if err := json.Unmarshal(data, &cniError); err != nil || cniError.Code == 0 {
		return nil, types.NewError(types.ErrInternal, fmt.Sprintf("the node daemon answered with HTTP status %d", status), string(data))
	}
	return nil, &cniError
}

// WriteResult answers a call that succeeded.
func WriteResult(w http.ResponseWriter, result json.RawMessage) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(Response{Result: result})
}

// WriteError answers a call that failed. An error that holds no *types.Error
// is an internal one.
func WriteError(w http.ResponseWriter, err error) error {
	var cniError *types.Error
	if !errors.As(err, &cniError) {
		cniError = types.NewError(types.ErrInternal, err.Error(), "")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	return json.NewEncoder(w).Encode(cniError)
}
