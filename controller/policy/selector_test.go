// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "testing"

func TestSelectorMatches(t *testing.T) {
	type labels = map[string]string
	web := labels{"app": "web"}
	tests := map[string]struct {
		peer                 string
		namespace            string
		namespaceLabels, pod labels
		want                 bool
	}{
		"pod":                              {`{podSelector: {matchLabels: {app: web}}}`, "ns", nil, web, true},
		"other pod":                        {`{podSelector: {matchLabels: {app: web}}}`, "ns", nil, labels{"app": "db"}, false},
		"pod of other namespace":           {`{podSelector: {matchLabels: {app: web}}}`, "other", nil, web, false},
		"any pod":                          {`{podSelector: {}}`, "ns", nil, nil, true},
		"any pod of other namespace":       {`{podSelector: {}}`, "other", nil, nil, false},
		"any namespace":                    {`{namespaceSelector: {}}`, "other", nil, nil, true},
		"pod of any namespace":             {`{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}`, "other", nil, web, true},
		"other pod of any namespace":       {`{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}`, "ns", nil, nil, false},
		"namespace":                        {`{namespaceSelector: {matchLabels: {team: a}}}`, "other", labels{"team": "a"}, nil, true},
		"own namespace by its labels":      {`{namespaceSelector: {matchLabels: {team: a}}}`, "ns", labels{"team": "b"}, nil, false},
		"pod of namespace":                 {`{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}`, "x", labels{"team": "a"}, web, true},
		"pod of namespace of other labels": {`{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}`, "x", labels{"team": "b"}, web, false},
		"in":                               {`{podSelector: {matchExpressions: [{key: app, operator: In, values: [db, web]}]}}`, "ns", nil, web, true},
		"in others":                        {`{podSelector: {matchExpressions: [{key: app, operator: In, values: [db]}]}}`, "ns", nil, web, false},
		"not in":                           {`{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db]}]}}`, "ns", nil, web, true},
		"not in, without":                  {`{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db]}]}}`, "ns", nil, nil, true},
		"exists":                           {`{podSelector: {matchExpressions: [{key: app, operator: Exists}]}}`, "ns", nil, web, true},
		"exists not":                       {`{podSelector: {matchExpressions: [{key: app, operator: Exists}]}}`, "ns", nil, nil, false},
		"does not exist":                   {`{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}`, "ns", nil, web, false},
		"all of several":                   {`{podSelector: {matchLabels: {app: web}, matchExpressions: [{key: old, operator: DoesNotExist}]}}`, "ns", nil, web, true},
		"not all of several":               {`{podSelector: {matchLabels: {app: web}, matchExpressions: [{key: old, operator: Exists}]}}`, "ns", nil, web, false},
		"selector fields that are null":    {`{podSelector: {matchLabels: null, matchExpressions: null}}`, "ns", nil, web, true},
		"namespaceSelector that is null":   {`{namespaceSelector: null, podSelector: {}}`, "other", nil, web, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePolicy(object(t, policyYAML(`{ingress: [{from: [`+tt.peer+`]}]}`)))
			if err != nil {
				t.Fatal(err)
			}
			s := p.Compile(testNetwork).Sets[0].Selector
			if got := s.Matches(tt.namespace, tt.namespaceLabels, tt.pod); got != tt.want {
				t.Errorf("%s matches: %v, want %v", s.Key(), got, tt.want)
			}
			if only := s.Namespace(); only != "" && only != tt.namespace && tt.want {
				t.Errorf("selects in namespace %s only", only)
			}
		})
	}
}

func TestSelectorKey(t *testing.T) {
	same := [][]string{
		{`{podSelector: {}}`, `{podSelector: {matchLabels: {}}}`, `{podSelector: {matchExpressions: []}}`},
		{`{namespaceSelector: {}}`, `{namespaceSelector: {}, podSelector: {}}`},
		{
			`{podSelector: {matchLabels: {a: b, c: d}}}`,
			`{podSelector: {matchLabels: {c: d, a: b}}}`,
		},
		{
			`{podSelector: {matchExpressions: [{key: a, operator: In, values: [x, z]}, {key: b, operator: Exists}]}}`,
			`{podSelector: {matchExpressions: [{key: b, operator: Exists}, {key: a, operator: In, values: [z, x, z]}]}}`,
		},
		{`{podSelector: {matchLabels: {a: b}}}`},
		{`{podSelector: {matchLabels: {a: ""}}}`},
		{`{podSelector: {matchExpressions: [{key: a, operator: In, values: [""]}]}}`},
		{`{podSelector: {matchExpressions: [{key: a, operator: Exists}]}}`},
		{`{podSelector: {matchExpressions: [{key: a, operator: NotIn, values: [x, z]}]}}`},
		{`{namespaceSelector: {matchLabels: {a: b}}}`},
		{`{namespaceSelector: {}, podSelector: {matchLabels: {a: b}}}`},
	}
	seen := map[string]int{}
	for i, peers := range same {
		for _, peer := range peers {
			p, err := ParsePolicy(object(t, policyYAML(`{ingress: [{from: [`+peer+`]}]}`)))
			if err != nil {
				t.Fatal(err)
			}
			key := p.Compile(testNetwork).Sets[0].Selector.Key()
			if other, ok := seen[key]; ok && other != i {
				t.Errorf("%s has the key of %s: %s", peer, same[other][0], key)
			}
			seen[key] = i
		}
	}
	if len(seen) != len(same) {
		t.Errorf("%d different selectors have %d keys: %v", len(same), len(seen), seen)
	}
}
