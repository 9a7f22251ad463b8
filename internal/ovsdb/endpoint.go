// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
)

// ParseEndpoints splits and checks a comma list of OVSDB endpoints:
// "unix:/path", "tcp:host:port" or "ssl:host:port" each.
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
		case "tcp", "ssl":
			host, port, err := net.SplitHostPort(rest)
			if err == nil && (host == "" || port == "") {
				err = errors.New("host or port is missing")
			}
			if err != nil {
				return nil, fmt.Errorf("OVSDB endpoint %q: %w", e, err)
			}
		default:
			return nil, fmt.Errorf("OVSDB endpoint %q: must be unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT", e)
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

func isSSL(endpoint string) bool { return strings.HasPrefix(endpoint, "ssl:") }
