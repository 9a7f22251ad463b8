// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

func cmdArgs(ipam string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: "c1", IfName: "net1", Netns: "/run/netns/c1", Args: "IgnoreUnknown=1;K8S_POD_NAME=web-0;odd;EMPTY=",
		StdinData: []byte(`{"cniVersion":"1.0.0","name":"lan","type":"macvlan","ipam":` + ipam + `}`),
	}
}

func TestClient(t *testing.T) {
	id := []byte("\x00c1/lan/net1")
	standard := dhcp.DefaultRequest()
	for _, test := range []struct {
		name, ipam string
		want       dhcp.Config
	}{
		{"plain", `{"type":"dhcp","daemonSocketPath":"/x"}`, dhcp.Config{Unicast: true, ClientID: id, Request: standard}},
		{"options by name", `{"provide":[{"option":"dhcp-client-identifier","value":"me"},{"option":"host-name","value":"web"},
			{"option":"user-class","value":"a"},{"option":"vendor-class-identifier","value":"b"}]}`,
			dhcp.Config{Unicast: true, ClientID: []byte("me"), HostName: "web", Request: standard, Options: map[uint8][]byte{77: []byte("a"), 60: []byte("b")}}},
		{"option by number", `{"provide":[{"option":"12","value":"web"},{"option":"125","value":"x"}]}`,
			dhcp.Config{Unicast: true, ClientID: id, HostName: "web", Request: standard, Options: map[uint8][]byte{125: []byte("x")}}},
		{"argument before value", `{"provide":[{"option":"host-name","value":"other","fromArg":"K8S_POD_NAME"}]}`,
			dhcp.Config{Unicast: true, ClientID: id, HostName: "web-0", Request: standard}},
		{"value without argument", `{"provide":[{"option":"host-name","value":"other","fromArg":"NONE"}]}`,
			dhcp.Config{Unicast: true, ClientID: id, HostName: "other", Request: standard}},
		{"nothing to send", `{"provide":[{"option":"host-name","fromArg":"EMPTY"},{"option":"60","fromArg":"NONE"}]}`,
			dhcp.Config{Unicast: true, ClientID: id, Request: standard}},
		{"more to ask for", `{"request":[{"option":"42"},{"option":"routers"}]}`, dhcp.Config{Unicast: true, ClientID: id, Request: append(dhcp.DefaultRequest(), 42)}},
		{"only what is asked for", `{"request":[{"skipDefault":true},{"option":"subnet-mask"},{"option":"routers"}]}`,
			dhcp.Config{Unicast: true, ClientID: id, Request: []uint8{1, 3}}},
		{"nothing to ask for", `{"request":[{"skipDefault":true}]}`, dhcp.Config{Unicast: true, ClientID: id, Request: []uint8{}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := parseCall(cmdArgs(test.ipam))
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.client()
			if err != nil {
				t.Fatal(err)
			}
			ignored := cmp.FilterPath(func(p cmp.Path) bool {
				f, ok := p.Last().(cmp.StructField)
				return ok && (f.Name() == "RequestedAddr" || f.Name() == "former" || f.Name() == "Selected")
			}, cmp.Ignore())
			if diff := cmp.Diff(test.want, got, ignored); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCallRefused(t *testing.T) {
	plain := cmdArgs(`{"type":"dhcp"}`)
	for _, test := range []struct {
		name   string
		change func(*skel.CmdArgs)
		want   string
	}{
		{"no JSON", func(a *skel.CmdArgs) { a.StdinData = []byte("{") }, "network configuration"},
		{"no ipam", func(a *skel.CmdArgs) { a.StdinData = []byte(`{"name":"lan"}`) }, "no ipam"},
		{"no network", func(a *skel.CmdArgs) { a.StdinData = []byte(`{"ipam":{}}`) }, "name"},
		{"path as container", func(a *skel.CmdArgs) { a.ContainerID = "../x" }, "containerID"},
		{"path as interface", func(a *skel.CmdArgs) { a.IfName = "../x" }, "interface name"},
		{"unknown option to send", func(a *skel.CmdArgs) { *a = *cmdArgs(`{"provide":[{"option":"domain","value":"x"}]}`) }, `ipam.provide[0]: option "domain"`},
		{"no option to ask for", func(a *skel.CmdArgs) { *a = *cmdArgs(`{"request":[{"option":"1"},{"option":"256"}]}`) }, `ipam.request[1]: option "256"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := *plain
			test.change(&args)
			c, err := parseCall(&args)
			if err == nil {
				_, err = c.client()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestLongNames has ids that are longer than an option, and than a file's name.
func TestLongNames(t *testing.T) {
	parse := func(container, ifname string) call {
		args := cmdArgs(`{}`)
		args.ContainerID, args.IfName = container, ifname
		c, err := parseCall(args)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	long := strings.Repeat("x", 300)
	first, second := parse(long, "net1"), parse(long, "net2")
	if first.key == second.key {
		t.Errorf("two interfaces have one key %s", first.key)
	}
	if len(first.key) > maxKey {
		t.Errorf("key %s is too long", first.key)
	}
	cfg, err := first.client()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(cfg.ClientID), "\x00"+long[:254]; got != want {
		t.Errorf("client id %q, want %q", got, want)
	}
}
