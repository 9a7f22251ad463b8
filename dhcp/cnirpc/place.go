// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"encoding/json"
	"fmt"
)

// place is where the lease of an attachment is in use, and how. It is the Data of the
// attachment's client.
type place struct {
	// Netns is the path as the caller has it, below the host's root directory.
	Netns  string `json:"netns"`
	IfName string `json:"ifname"`
	// Priority is the metric of the lease's routes.
	Priority int `json:"priority,omitempty"`
	// Via is the host's device by which the network can be reached without the
	// interface; empty if there is none.
	Via string `json:"via,omitempty"`
	// Port says that Via is a bridge that the interface was a port of.
	Port bool `json:"port,omitempty"`
}

// place returns the place of an attachment that the Keeper has a record of.
func (s *Server) place(key string) (at place, err error) {
	if err := json.Unmarshal(s.keeper.Data(key), &at); err != nil {
		return place{}, fmt.Errorf("reading attachment %s: %w", key, err)
	}
	return at, nil
}
