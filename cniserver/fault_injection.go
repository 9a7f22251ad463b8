//go:build faultinjection

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// fault fails at the moment that the environment names, as "KIND MOMENT": once
// with kind error, and by the end of the process with kind crash. With kind
// list, it writes the moments to stderr as they come.
func fault(moment string) error {
	kind, at, _ := strings.Cut(os.Getenv("OVN_DHCP_IPAM_FAULT"), " ")
	if kind == "list" {
		fmt.Fprintf(os.Stderr, "fault moment: %s\n", moment)
		return nil
	}
	if at != moment {
		return nil
	}
	if kind == "crash" {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return errors.Join(fmt.Errorf("injected fault %s", moment), os.Unsetenv("OVN_DHCP_IPAM_FAULT"))
}
