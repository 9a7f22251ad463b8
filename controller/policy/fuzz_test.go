// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// FuzzParse holds whatever an object may be against what a match must be.
func FuzzParse(f *testing.F) {
	for _, u := range inputs(f) {
		data, err := json.Marshal(u.Object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		if json.Unmarshal(data, &u.Object) != nil || u.Object == nil {
			return
		}
		p, err := ParsePolicy(u)
		c := p.Compile(testNetwork)
		if err != nil && (len(c.Rows.ACLs) > 0 || isolated(p) == "") {
			t.Errorf("in spite of %v: isolates %q and allows\n%s", err, isolated(p), c.Rows)
		}
		p.Pods.Matches("ns", nil, nil)
		group := c.Rows.PortGroups[0].Name
		for _, acl := range c.Rows.ACLs {
			direction := Direction(acl.ExternalIDs[idDirection])
			if !strings.HasSuffix(acl.Match, " && "+direction.of(group)) || !p.Isolates(direction) || len(acl.Name) > maxACLName {
				t.Errorf("policy has ACL\n%v", acl)
			}
			checkMatch(t, acl.Match, c.Sets)
		}
		checkIDs(t, c.rows())

		q, err := ParseQoS(u)
		if err != nil {
			return
		}
		c = q.Compile(testNetwork)
		q.Selects(u, nil)
		for _, row := range c.Rows.QoS {
			checkMatch(t, row.Match, c.Sets)
		}
		checkIDs(t, c.rows())
	})
}

// wellFormed are the terms that matches are made of.
var wellFormed = regexp.MustCompile(`^(` + strings.Join([]string{
	`ip4`,
	`ip4\.(src|dst) == \{(\$a\d+|\d+\.\d+\.\d+\.\d+/\d+)(, (\$a\d+|\d+\.\d+\.\d+\.\d+/\d+))*\}`,
	`(in|out)port == @a\d+`,
	`tcp|udp|sctp`,
	`(tcp|udp|sctp)\.dst==(\d+|\{\d+(,\d+)+\})`,
	`\d+<=(tcp|udp|sctp)\.dst<=\d+`,
}, "|") + `)$`)

var (
	grouping  = regexp.MustCompile(`^\(+|\)+$`)
	setInText = regexp.MustCompile(`\$(a\d+)`)
)

// checkMatch checks a match by its terms, and that the sets in it are known.
func checkMatch(t *testing.T, match string, sets []Set) {
	t.Helper()
	if strings.Count(match, "(") != strings.Count(match, ")") || !strings.HasPrefix(match, "ip4") {
		t.Errorf("match %s", match)
	}
	for _, term := range regexp.MustCompile(` && | \|\| `).Split(match, -1) {
		if bare := grouping.ReplaceAllString(term, ""); !wellFormed.MatchString(bare) {
			t.Errorf("match %s: term %q", match, bare)
		}
	}
	for _, name := range setInText.FindAllStringSubmatch(match, -1) {
		found := false
		for _, s := range sets {
			found = found || s.Row.Name == name[1]
		}
		if !found {
			t.Errorf("match %s: there is no set %s", match, name[1])
		}
	}
	for _, s := range sets {
		s.Selector.Matches("ns", map[string]string{"a": "b"}, nil)
	}
}

func checkIDs(t *testing.T, rows nbdb.Rows) {
	t.Helper()
	seen := map[string]bool{}
	check := func(ids map[string]string) {
		if id := ids[nbdb.IDKey]; id == "" || seen[id] {
			t.Errorf("%s %q is there twice, or empty", nbdb.IDKey, id)
		}
		seen[ids[nbdb.IDKey]] = true
	}
	for _, acl := range rows.ACLs {
		check(acl.ExternalIDs)
	}
	for _, q := range rows.QoS {
		check(q.ExternalIDs)
	}
	for _, s := range rows.AddressSets {
		check(s.ExternalIDs)
	}
}
