// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package ovsdb

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseEndpoints(t *testing.T) {
	got, err := ParseEndpoints("unix:/a.sock, tcp:10.0.0.1:6641,tcp:[fd00::1]:6641,ssl:nb.example:6641")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"unix:/a.sock", "tcp:10.0.0.1:6641", "tcp:[fd00::1]:6641", "ssl:nb.example:6641"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, list := range []string{
		"", "unix:", "unix:relative", "tcp:", "tcp:10.0.0.1", "tcp::6641", "ssl:", "ssl:10.0.0.1", "ssl:10.0.0.1:",
		"udp:10.0.0.1:1", "/a.sock", "unix:/a,",
	} {
		if _, err := ParseEndpoints(list); err == nil || !strings.Contains(err.Error(), "OVSDB endpoint") {
			t.Errorf("%q: got error %v", list, err)
		}
	}
}
