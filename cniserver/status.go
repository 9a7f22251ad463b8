// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"time"
)

// errNotAvailable is the CNI error code of a plugin that can't serve an ADD at
// this moment (CNI specification 1.1.0, STATUS).
const errNotAvailable = 50

// statusTimeout is what a STATUS waits for the Open vSwitch database.
const statusTimeout = 2 * time.Second

// status says whether an ADD on the network could be served: the configuration
// is valid, the daemon has its capabilities, Open vSwitch is there, and the physical
// network has its bridge.
func (s *Server) status(ctx context.Context, c call) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	conf, err := s.netConf(c)
	if err != nil {
		return err
	}
	if err := checkPrivilege(s.missing); err != nil {
		return fail(errNotAvailable, err)
	}
	if _, err := s.vswitch.userspace(ctx); err != nil {
		return fail(errNotAvailable, err)
	}
	if _, err := s.vswitch.physicalBridge(ctx, conf.PhysicalNetworkName); err != nil {
		return fail(errNotAvailable, err)
	}
	return nil
}
