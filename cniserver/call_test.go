// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/cniserver/wire"
)

func request(changes map[string]string) wire.Request {
	env := map[string]string{
		"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/c1", "CNI_IFNAME": "net1",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u1",
	}
	for k, v := range changes {
		env[k] = v
	}
	return wire.Request{Env: env, Config: []byte("{}")}
}

func TestParseCall(t *testing.T) {
	got, err := parseCall(request(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := call{
		cniArgs: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u1",
		command: "ADD", containerID: "c1", netns: "/run/netns/c1", ifname: "net1", config: []byte("{}"),
		args: map[string]string{"IgnoreUnknown": "1", "K8S_POD_NAMESPACE": "ns", "K8S_POD_NAME": "web", "K8S_POD_UID": "u1"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseCallRefuses(t *testing.T) {
	for _, test := range []struct{ key, value, want string }{
		{"CNI_CONTAINERID", "../../etc", `CNI_CONTAINERID "../../etc"`},
		{"CNI_IFNAME", "", "CNI_IFNAME"},
		{"CNI_IFNAME", "abcdefghijklmnop", `CNI_IFNAME "abcdefghijklmnop"`},
		{"CNI_IFNAME", "a/b", `CNI_IFNAME "a/b"`},
		{"CNI_ARGS", "K8S_POD_NAME", "CNI_ARGS"},
		{"CNI_ARGS", "K8S_POD_NAME=web", "K8S_POD_NAMESPACE is missing"},
		{"CNI_ARGS", "K8S_POD_NAMESPACE=ns", "K8S_POD_NAME is missing"},
		{"CNI_ARGS", "", "is missing"},
	} {
		c, err := parseCall(request(map[string]string{test.key: test.value}))
		if err == nil {
			_, _, err = c.podName()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s=%q: got error %v, want one with %q", test.key, test.value, err, test.want)
			continue
		}
		if code := cniError(err).Code; code != 4 {
			t.Errorf("%s=%q: CNI error code %d, want 4", test.key, test.value, code)
		}
	}
}
