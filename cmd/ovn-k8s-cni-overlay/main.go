// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Command ovn-k8s-cni-overlay is the CNI plugin: it hands each call to the
// node daemon and prints what comes back.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
)

func main() {
	// A runtime that gives up ends the call, and the daemon then undoes it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	handedOver := false
	call := func(command string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			handedOver = true
			return handOver(ctx, command, args)
		}
	}
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    call("ADD"),
		Del:    call("DEL"),
		Check:  call("CHECK"),
		GC:     call("GC"),
		Status: call("STATUS"),
	}, version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0"),
		"ovn-k8s-cni-overlay: addresses from the site's DHCP server for pods on OVN localnet networks")
	if err == nil {
		return
	}
	if !handedOver && err.Code == types.ErrInvalidEnvironmentVariables {
		// The library says what is wrong with a value, but not always whose it is.
		err.Msg = fmt.Sprintf("CNI_CONTAINERID=%q CNI_IFNAME=%q: %s", os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_IFNAME"), err.Msg)
	}
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintln(os.Stderr, "the error can't be written to stdout:", printErr)
	}
	os.Exit(1)
}

func handOver(ctx context.Context, command string, args *skel.CmdArgs) error {
	env := map[string]string{}
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CNI_") {
			env[name] = value
		}
	}
	env["CNI_COMMAND"] = command
	// The library looks at this only after the call.
	if same, err := ns.CheckNetNS(args.Netns); command == "ADD" && (err != nil || same) {
		return types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %q is the network namespace of the plugin itself, or can't be compared with it", args.Netns), "")
	}
	request := wire.Request{Env: env, Config: args.StdinData}
	if command == "ADD" {
		var err error
		if request.DeviceInfo, err = deviceInfo(deviceInfoDir, args.StdinData); err != nil {
			return types.NewError(types.ErrInvalidNetworkConfig, "the device's information can't be read", err.Error())
		}
	}
	plugin := filepath.Base(os.Args[0])
	result, err := wire.Call(ctx, wire.SocketPath(plugin), request)
	if err != nil || len(result) == 0 {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return types.NewError(types.ErrIOFailure, "the result can't be written to stdout", err.Error())
	}
	return nil
}

// deviceInfoDir is where the files of the Device Information Specification are.
const deviceInfoDir = "/var/run/k8s.cni.cncf.io/devinfo"

// maxDeviceInfo bounds what is read of one, in bytes.
const maxDeviceInfo = 1 << 20

// deviceInfo reads the file, which a network configuration may name, with what a
// device plugin says of the device. Who writes configurations is not to name any file
// of the node: it is one below dir, where only root writes.
func deviceInfo(dir string, config []byte) (info wire.DeviceInfo, err error) {
	var conf struct {
		RuntimeConfig struct {
			File string `json:"CNIDeviceInfoFile"`
		} `json:"runtimeConfig"`
	}
	if json.Unmarshal(config, &conf) != nil || conf.RuntimeConfig.File == "" {
		return info, nil // what is wrong with a configuration the daemon tells
	}
	name, err := filepath.Rel(dir, conf.RuntimeConfig.File)
	if err != nil || !filepath.IsLocal(name) {
		return info, fmt.Errorf("runtimeConfig.CNIDeviceInfoFile: Invalid value: %q: must be below %s", conf.RuntimeConfig.File, dir)
	}
	f, err := os.OpenInRoot(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return info, nil // multus names the file whether or not there is one
	}
	if err != nil {
		return info, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDeviceInfo))
	if err != nil {
		return info, err
	}
	return info, json.Unmarshal(data, &info)
}
