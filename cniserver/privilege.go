// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// missingCapabilities names the capabilities that attaching a pod needs and this
// process does not have: to make interfaces, to speak by packet sockets, and to
// enter network namespaces.
func missingCapabilities() ([]string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // the call writes both, for capabilities 0 to 31 and 32 to 63
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("capabilities of this process: %w", err)
	}
	var missing []string
	for _, c := range []struct {
		name string
		bit  uint
	}{
		{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_NET_RAW", unix.CAP_NET_RAW}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
	} {
		if data[0].Effective&(1<<c.bit) == 0 {
			missing = append(missing, c.name)
		}
	}
	return missing, nil
}

// checkPrivilege says what the missing ones are missing for.
func checkPrivilege(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the node daemon is unprivileged (it lacks %s), and DHCP needs a socket in the pod's network namespace", strings.Join(missing, ", "))
}
