// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// TestForms gives the rows of every golden file to a real OVN, for ports that
// are bound: a match that ovn-controller can't use is one that it only logs, and
// makes no flows of.
func TestForms(t *testing.T) {
	onEachRelease(t, func(t *testing.T, s site) {
		hints := s.write(allRows(t))
		s.nbctl("--wait=hv", "sync")
		if complaints := s.complaints(); len(complaints) > 0 {
			t.Errorf("of matches with empty sets:\n%s", strings.Join(complaints, "\n"))
		}
		s.fill("192.0.2.1", "192.0.2.2")
		if complaints := s.complaints(); len(complaints) > 0 {
			t.Errorf("of matches with sets:\n%s", strings.Join(complaints, "\n"))
		}
		flows := s.flows()
		for hint, what := range hints {
			if flows[hint] == 0 {
				t.Errorf("no flow for %s", what)
			}
		}
		s.mustNotice()
	})
}

// allRows are those of the golden files and of a network. The golden files'
// objects get names of their own.
func allRows(t *testing.T) []nbdb.Rows {
	sets := map[string]nbdb.AddressSet{}
	var out []nbdb.Rows
	for name, u := range inputs(t) {
		u.SetName(name)
		c, _ := compile(u)
		for _, s := range c.Sets {
			sets[s.Row.Name] = s.Row
		}
		out = append(out, c.Rows)
	}
	shared := nbdb.Rows{}
	for _, s := range sets {
		shared.AddressSets = append(shared.AddressSets, s)
	}
	out = append(out, shared)
	for _, rows := range networkRows() {
		out = append(out, rows)
	}
	// Flows that are the same are there once.
	next := 0
	for _, rows := range out {
		for i := range rows.ACLs {
			next++
			rows.ACLs[i].Priority = next
		}
		for i := range rows.QoS {
			next++
			rows.QoS[i].Priority = next
		}
	}
	return out
}

// flows are how many flows of OpenFlow there are for the rows of the northbound
// database, by hint.
func (s site) flows() map[string]int {
	s.t.Helper()
	text, err := s.Sbctl(s.t.Context(), "--format=json", "--columns=_uuid,external_ids", "list", "Logical_Flow")
	if err != nil {
		s.t.Fatal(err)
	}
	hintOf := map[string]string{} // by cookie
	for _, l := range s.list(text) {
		hintOf[strings.TrimLeft(l.uuid[:8], "0")] = l.ids["stage-hint"]
	}
	dump, err := s.Nodes[0].Command(s.t.Context(), "ovs-ofctl", "dump-flows", "br-int").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int{}
	for _, cookie := range regexp.MustCompile(`cookie=0x([0-9a-f]+)`).FindAllStringSubmatch(string(dump), -1) {
		out[hintOf[cookie[1]]]++
	}
	return out
}

var complaint = regexp.MustCompile(`(?i)error parsing|syntax error|cannot|invalid|unknown|prerequisite|\|ERR\|`)

// complaints are what ovn-controller and ovn-northd have logged about matches.
func (s site) complaints() []string {
	s.t.Helper()
	var out []string
	logs, err := filepath.Glob(filepath.Join(s.Dir, "*", "ovn-*.log"))
	if err != nil || len(logs) < 2 {
		s.t.Fatalf("logs %v, %v", logs, err)
	}
	for _, log := range logs {
		data, err := os.ReadFile(log)
		if err != nil {
			s.t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if complaint.MatchString(line) && !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
	}
	return out
}

// mustNotice shows that a match that is refused would have been noticed.
func (s site) mustNotice() {
	s.t.Helper()
	s.nbctl("--wait=hv", "acl-add", podnet.SwitchName(testNetwork.Name), "from-lport", "3000", "!(arp || nd)", "drop")
	refused := s.nbctl("--bare", "--columns=_uuid", "find", "ACL", "priority=3000")
	if n := s.flows()[refused[:8]]; n > 0 {
		s.t.Errorf("a negated match has %d flows", n)
	}
	if len(s.complaints()) == 0 {
		s.t.Error("nothing is logged about a negated match")
	}
}
