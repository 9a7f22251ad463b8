// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// policyYAML is a policy with this spec, in YAML's flow style.
func policyYAML(spec string) string {
	return fmt.Sprintf(`{apiVersion: k8s.cni.cncf.io/v1beta1, kind: MultiNetworkPolicy,
metadata: {name: p, namespace: ns, annotations: {%s: net}}, spec: %s}`, PolicyFor, spec)
}

func isolated(p *Policy) string {
	var out []string
	for _, d := range directions {
		if p.Isolates(d) {
			out = append(out, string(d))
		}
	}
	return strings.Join(out, " ")
}

func TestPolicyTypes(t *testing.T) {
	for spec, want := range map[string]string{
		`{}`:                                     "Ingress",
		`{podSelector: {}}`:                      "Ingress",
		`{policyTypes: null}`:                    "Ingress",
		`{policyTypes: []}`:                      "Ingress",
		`{ingress: []}`:                          "Ingress",
		`{egress: []}`:                           "Ingress",
		`{egress: null}`:                         "Ingress",
		`{egress: [{}]}`:                         "Ingress Egress",
		`{policyTypes: [Ingress], egress: [{}]}`: "Ingress",
		`{policyTypes: [Egress]}`:                "Egress",
		`{policyTypes: [Egress], ingress: [{}]}`: "Egress",
		`{policyTypes: [Egress, Ingress]}`:       "Ingress Egress",
		`{policyTypes: [Ingress, Ingress]}`:      "Ingress",
	} {
		p, err := ParsePolicy(object(t, policyYAML(spec)))
		if err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		if got := isolated(p); got != want {
			t.Errorf("%s isolates %q, want %q", spec, got, want)
		}
	}
}

func TestPolicyFor(t *testing.T) {
	for annotation, want := range map[string]struct{ nads, err string }{
		"net":                   {nads: "ns/net"},
		"other/net":             {nads: "other/net"},
		" b , other/a,b,ns/b, ": {nads: "ns/b other/a"},
		"":                      {err: `metadata.annotations[k8s.v1.cni.cncf.io/policy-for]: "": must name the networks`},
		" , ":                   {err: "must name the networks"},
		"net,a/b/c":             {nads: "ns/net", err: `"a/b/c": must be a NetworkAttachmentDefinition's name`},
		"net,/c":                {nads: "ns/net", err: `"/c": must be`},
		"net,c/":                {nads: "ns/net", err: `"c/": must be`},
	} {
		u := object(t, policyYAML(`{ingress: [{}]}`))
		u.SetAnnotations(map[string]string{PolicyFor: annotation})
		p, err := ParsePolicy(u)
		if got := strings.Join(p.NADs, " "); got != want.nads {
			t.Errorf("%q names %q, want %q", annotation, got, want.nads)
		}
		if (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%q: error %v, want %q", annotation, err, want.err)
		}
		if acls := p.Compile(testNetwork).Rows.ACLs; err != nil && len(acls) > 0 {
			t.Errorf("%q allows something in spite of %v", annotation, err)
		}
	}
}

// What can't be compiled denies everything, to the pods and in the directions
// that can be read, and the error names field and value.
func TestPolicyFailsClosed(t *testing.T) {
	const web = "ns_LS{ML:{app: web,},}"
	const all = "ns_LS{}"
	from := func(peer string) string {
		return `{podSelector: {matchLabels: {app: web}}, ingress: [{}, {from: [` + peer + `]}]}`
	}
	ports := func(port string) string {
		return `{podSelector: {matchLabels: {app: web}}, egress: [{}, {ports: [` + port + `]}]}`
	}
	many := func(element string, n int) string { return "[" + strings.Repeat(element+", ", n) + "]" }
	tests := map[string]struct{ spec, pods, isolated, err string }{
		"bad CIDR":               {from(`{ipBlock: {cidr: 10.0.0.0/33}}`), web, "Ingress", `spec.ingress[1].from[0].ipBlock.cidr: "10.0.0.0/33": must be an IPv4 address`},
		"address without length": {from(`{ipBlock: {cidr: 10.0.0.1}}`), web, "Ingress", `ipBlock.cidr: "10.0.0.1"`},
		"leading zero":           {from(`{ipBlock: {cidr: 010.0.0.0/8}}`), web, "Ingress", `ipBlock.cidr: "010.0.0.0/8"`},
		"CIDR is a number":       {from(`{ipBlock: {cidr: 10}}`), web, "Ingress", `ipBlock.cidr: 10: must be a string`},
		"IPv6 block":             {from(`{ipBlock: {cidr: "2001:db8::/32"}}`), web, "Ingress", `ipBlock.cidr: "2001:db8::/32": must be of IPv4`},
		"mapped block":           {from(`{ipBlock: {cidr: "::ffff:10.0.0.0/104"}}`), web, "Ingress", `must be of IPv4`},
		"no CIDR":                {from(`{ipBlock: {}}`), web, "Ingress", `spec.ingress[1].from[0].ipBlock: map[]: needs cidr`},
		"except outside":         {from(`{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}`), web, "Ingress", `ipBlock.except[0]: "11.0.0.0/16": must be a part of 10.0.0.0/8`},
		"except is all":          {from(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}`), web, "Ingress", `except[0]: "10.0.0.0/8"`},
		"except is more":         {from(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/9, 0.0.0.0/0]}}`), web, "Ingress", `except[1]: "0.0.0.0/0"`},
		"bad except":             {from(`{ipBlock: {cidr: 10.0.0.0/8, except: [x]}}`), web, "Ingress", `except[0]: "x"`},
		"block and pods":         {from(`{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}`), web, "Ingress", `ipBlock can't be combined`},
		"empty peer":             {from(`{}`), web, "Ingress", `spec.ingress[1].from[0]: map[]: needs podSelector, namespaceSelector or ipBlock`},
		"null peer":              {from(`null`), web, "Ingress", `needs podSelector`},
		"unknown peer":           {from(`{podSelector: {}, serviceSelector: {}}`), web, "Ingress", `spec.ingress[1].from[0].serviceSelector: map[]: is not a field`},
		"peer is no object":      {from(`web`), web, "Ingress", `from[0]: "web": must be an object`},
		"bad peer selector":      {from(`{podSelector: {matchLabels: {"-": x}}}`), web, "Ingress", `podSelector.matchLabels: "- = [x]": key: Invalid value: "-"`},
		"bad operator":           {from(`{podSelector: {matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}}`), web, "Ingress", `matchExpressions[0].operator: "Gt": must be In`},
		"In nothing":             {from(`{podSelector: {matchExpressions: [{key: a, operator: In}]}}`), web, "Ingress", `matchExpressions[0]: "a in []"`},
		"Exists with values":     {from(`{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}`), web, "Ingress", `matchExpressions[0]: "a exists [b]"`},
		"label is a number":      {from(`{podSelector: {matchLabels: {a: 1}}}`), web, "Ingress", `matchLabels[a]: 1: must be a string`},
		"too many blocks":        {from(strings.Repeat(`{ipBlock: {cidr: 0.0.0.0/0, except: [128.0.0.1/32]}}, `, 320)), web, "Ingress", "10000 at most"},
		"too many peers":         {from(strings.Repeat(`{podSelector: {}}, `, 10001)), web, "Ingress", "10000 at most"},
		"unknown protocol":       {ports(`{protocol: ICMP}`), web, "Ingress Egress", `spec.egress[1].ports[0].protocol: "ICMP": must be TCP, UDP or SCTP`},
		"lower case protocol":    {ports(`{protocol: tcp}`), web, "Ingress Egress", `protocol: "tcp"`},
		"named port":             {ports(`{port: http}`), web, "Ingress Egress", `spec.egress[1].ports[0].port: "http": must be a number: pods' names`},
		"number as a name":       {ports(`{port: "80"}`), web, "Ingress Egress", `ports[0].port: "80": must be a number`},
		"port 0":                 {ports(`{port: 0}`), web, "Ingress Egress", `port: 0: must be a number from 1 to 65535`},
		"port 65536":             {ports(`{port: 65536}`), web, "Ingress Egress", `port: 65536: must be`},
		"negative port":          {ports(`{port: -80}`), web, "Ingress Egress", `port: -80: must be`},
		"half a port":            {ports(`{port: 80.5}`), web, "Ingress Egress", `port: 80.5: must be`},
		"huge port":              {ports(`{port: 1e300}`), web, "Ingress Egress", `must be a number`},
		"endPort less than port": {ports(`{port: 80, endPort: 79}`), web, "Ingress Egress", `ports[0].endPort: 79: must not be less than port, 80`},
		"endPort alone":          {ports(`{endPort: 79}`), web, "Ingress Egress", `ports[0].endPort: 79: needs port`},
		"endPort of a name":      {ports(`{port: http, endPort: 79}`), web, "Ingress Egress", `port: "http"`},
		"too many ports":         {ports(strings.Repeat(`{port: 1}, `, 10001)), web, "Ingress Egress", "10000 at most"},
		"rules are no list":      {`{egress: {}}`, all, "Ingress Egress", `spec.egress: map[]: must be a list`},
		"rule is no object":      {`{ingress: [x]}`, all, "Ingress", `spec.ingress[0]: "x": must be an object`},
		"unknown field of rule":  {`{ingress: [{to: []}]}`, all, "Ingress", `spec.ingress[0].to: []: is not a field`},
		"unknown field of spec":  {`{podSelector: {matchLabels: {app: web}}, stages: 1}`, web, "Ingress", `spec.stages: 1: is not a field`},
		"bad podSelector":        {`{podSelector: {matchLabels: {a: [b]}}, ingress: [{}]}`, all, "Ingress", `spec.podSelector.matchLabels[a]: [b]: must be a string`},
		"podSelector is a text":  {`{podSelector: app=web, ingress: [{}]}`, all, "Ingress", `spec.podSelector: "app=web": must be an object`},
		"unknown policyTypes":    {`{policyTypes: [Egress, Both], egress: [{}]}`, all, "Ingress Egress", `spec.policyTypes[1]: "Both": must be Ingress or Egress`},
		"policyTypes is a text":  {`{policyTypes: Egress, egress: [{}]}`, all, "Ingress Egress", `spec.policyTypes: "Egress": must be a list`},
		"bad rule of no effect":  {`{policyTypes: [Egress], egress: [{}], ingress: [{ports: [{port: x}]}]}`, all, "Egress", `spec.ingress[0].ports[0].port: "x"`},
		"spec is a list":         {`[]`, all, "Ingress Egress", `spec: []: must be an object`},
		"many errors":            {`{ingress: ` + many("x", 20) + `}`, all, "Ingress", `; and 12 more`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePolicy(object(t, policyYAML(tt.spec)))
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %s", err, tt.err)
			}
			if err != nil && len(err.Error()) > maxErrors*3*(maxShown+10) {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if p.Pods.Key() != tt.pods || isolated(p) != tt.isolated {
				t.Errorf("pods %s, isolates %q, want %s, %q", p.Pods.Key(), isolated(p), tt.pods, tt.isolated)
			}
			c := p.Compile(testNetwork)
			if len(c.Rows.PortGroups) != 1 || len(c.Rows.ACLs) != 0 || len(c.Sets) != 0 {
				t.Errorf("compiles to\n%s", c.rows())
			}
		})
	}
}

// An object that isn't a policy that is known denies as well.
func TestPolicyIdentity(t *testing.T) {
	for change, want := range map[string]string{
		"apiVersion: k8s.cni.cncf.io/v2": `apiVersion: "k8s.cni.cncf.io/v2": must be k8s.cni.cncf.io/v1beta1 or`,
		"kind: NetworkPolicy":            `kind: "NetworkPolicy": must be MultiNetworkPolicy`,
		"name: a:b":                      `metadata.name: "a:b"`,
		"namespace: a.b":                 `metadata.namespace: "a.b"`,
	} {
		key, value, _ := strings.Cut(change, ": ")
		u := object(t, policyYAML(`{ingress: [{}]}`))
		switch key {
		case "name":
			u.SetName(value)
		case "namespace":
			u.SetNamespace(value)
		default:
			u.Object[key] = value
		}
		p, err := ParsePolicy(u)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", change, err, want)
		}
		if len(p.Compile(testNetwork).Rows.ACLs) > 0 || !p.Isolates(Ingress) {
			t.Errorf("%s: allows something", change)
		}
	}
}

// A policy compiles to the same rows whatever the order of maps.
func TestCompileIsStable(t *testing.T) {
	u := inputs(t)["peer-pods-in-namespaces"]
	first, _ := compile(u)
	for range 20 {
		again, _ := compile(u)
		if d := cmp.Diff(first.rows(), again.rows()); d != "" {
			t.Fatalf("rows differ: %s", d)
		}
	}
}

// Policies and QoS rules that select the same pods share a set.
func TestSetsAreShared(t *testing.T) {
	a, _ := ParsePolicy(object(t, policyYAML(`{ingress: [{from: [{podSelector: {matchLabels: {a: b, c: d}}}]}]}`)))
	b, _ := ParsePolicy(object(t, policyYAML(`{egress: [{to: [{podSelector: {matchLabels: {c: d, a: b}}}]}]}`)))
	q, err := ParseQoS(object(t, qosYAML(`{classifier: {to: [{podSelector: {matchLabels: {c: d, a: b}}}]}, dscp: 1}`)))
	if err != nil {
		t.Fatal(err)
	}
	sets := a.Compile(testNetwork).Sets
	if len(sets) != 1 {
		t.Fatalf("sets %v", sets)
	}
	for _, other := range [][]Set{b.Compile(testNetwork).Sets, q.Compile(testNetwork).Sets} {
		if !slices.ContainsFunc(other, func(s Set) bool { return s.Row.Name == sets[0].Row.Name }) {
			t.Errorf("sets %v, want %s among them", other, sets[0].Row.Name)
		}
	}
	if other := a.Compile(Network{Name: "other"}).Sets; other[0].Row.Name == sets[0].Row.Name {
		t.Errorf("two networks share set %s", sets[0].Row.Name)
	}
}
