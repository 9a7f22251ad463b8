// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"fmt"
	"net"
	"path"
	"strings"
)

// ParseEndpoints splits and checks a comma list of OVSDB endpoints:
// "unix:/path" or "tcp:host:port" each.
func ParseEndpoints(list string) ([]string, error) {
	var endpoints []string
	for e := range strings.SplitSeq(list, ",") {
		e = strings.TrimSpace(e)
		scheme, rest, _ := strings.Cut(e, ":")
		switch scheme {
		case "unix":
			if !path.IsAbs(rest) {
				return nil, fmt.Errorf("OVSDB endpoint %q: unix needs an absolute path", e)
			}
		case "tcp":
			if _, _, err := net.SplitHostPort(rest); err != nil {
				return nil, fmt.Errorf("OVSDB endpoint %q: %w", e, err)
			}
		default:
			return nil, fmt.Errorf("OVSDB endpoint %q: must be unix:PATH or tcp:HOST:PORT", e)
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}
