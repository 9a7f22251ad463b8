// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// TestResultRoutes has routes with a metric, and without.
func TestResultRoutes(t *testing.T) {
	routes := []route{{prefix("10.9.0.0/16"), addr("10.1.0.2")}, {Dest: prefix("10.8.0.0/16")}}
	for metric, want := range map[int]string{
		0:  `[{"dst":"10.9.0.0/16","gw":"10.1.0.2"},{"dst":"10.8.0.0/16"}]`,
		50: `[{"dst":"10.9.0.0/16","gw":"10.1.0.2","priority":50},{"dst":"10.8.0.0/16","priority":50}]`,
	} {
		got, err := json.Marshal(result(attachment{RouteMetric: metric}, dhcp.Lease{Addr: prefix("10.1.0.5/24")}, routes).Routes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("metric %d (-want +got):\n%s", metric, diff)
		}
	}
}
