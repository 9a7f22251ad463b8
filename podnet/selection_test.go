// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindRequest(t *testing.T) {
	mac, err := ParseMAC("02:00:00:00:00:07")
	if err != nil {
		t.Fatal(err)
	}
	const twice = `[{"name":"lan"},{"name":"other"},{"name":"lan","namespace":"ns","mac":"02:00:00:00:00:07","default-route":["10.0.0.1"]}]`
	for _, test := range []struct {
		name, annotation, ifname string
		want                     Request
	}{
		{"nothing selected", "", "net1", Request{NADKey: "ns/lan"}},
		{"another selected", "ns/other", "net1", Request{NADKey: "ns/lan"}},
		{"comma list", "other, lan", "net2", Request{NADKey: "ns/lan"}},
		{"comma list with interface", "ns/lan@eth5", "eth5", Request{NADKey: "ns/lan"}},
		{"by position", twice, "net1", Request{NADKey: "ns/lan"}},
		{"the second one", twice, "net3", Request{NADKey: "ns/lan/1", MAC: mac, DefaultRoute: true}},
		{"by interface before position", "lan@net2,lan@net1", "net1", Request{NADKey: "ns/lan/1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			selections, err := ParseSelections(test.annotation, "ns")
			if err != nil {
				t.Fatal(err)
			}
			got, err := FindRequest(selections, "ns/lan", test.ifname)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectionsRefused(t *testing.T) {
	for _, test := range []struct{ annotation, want string }{
		{`[{"name":"lan"`, "not a JSON list"},
		{`[{"namespace":"ns"}]`, "field name"},
		{"lan,,", "field name"},
		{"a/b/c", "field name"},
		{`[{"name":"lan","mac":"zz"}]`, "field mac"},
		{`[{"name":"lan","mac":"ff:ff:ff:ff:ff:ff"}]`, "field mac"},
		{`[{"name":"lan","default-route":["x"]}]`, "field default-route"},
		{`[{"name":"lan","interface":"eth7"}]`, `no element gives ns/lan the interface "net1"`},
	} {
		selections, err := ParseSelections(test.annotation, "ns")
		if err == nil {
			_, err = FindRequest(selections, "ns/lan", "net1")
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one with %q", test.annotation, err, test.want)
		}
	}
}
