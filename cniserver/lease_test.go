// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// addingWith is an ADD on a network with this ipam object.
func addingWith(t *testing.T, ipam string) *adding {
	t.Helper()
	conf, err := podnet.ParseNetConf(fmt.Appendf(nil,
		`{"cniVersion":"1.0.0","name":"lan","type":"ovn-k8s-cni-overlay","netAttachDefName":"ns/lan","topology":"localnet","ipam":%s}`, ipam))
	if err != nil {
		t.Fatal(err)
	}
	return &adding{
		conf: conf, mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}, hostName: "web",
		args: map[string]string{"K8S_POD_NAME": "web-0", "EMPTY": "", "LONG": strings.Repeat("x", 256), "SHORT": "x"},
	}
}

func TestClientConfig(t *testing.T) {
	for _, test := range []struct {
		name, provide, request string
		want                   dhcp.Config // but for the hardware address, the default host name and the default request
	}{
		{"plain", ``, ``, dhcp.Config{}},
		{"options by name", `{"option":"host-name","value":"db"},{"option":"vendor-class-identifier","value":"a"},
			{"option":"dhcp-client-identifier","value":"me"},{"option":"user-class","value":"b"}`, ``,
			dhcp.Config{HostName: "db", ClientID: []byte("me"), Options: map[uint8][]byte{60: []byte("a"), 77: []byte("b")}}},
		{"options by number", `{"option":"12","value":"db"},{"option":"60","value":"a"},{"option":"61","value":"me"},{"option":"77","value":"b"},{"option":"125","value":"c"}`, ``,
			dhcp.Config{HostName: "db", ClientID: []byte("me"), Options: map[uint8][]byte{60: []byte("a"), 77: []byte("b"), 125: []byte("c")}}},
		{"an argument", `{"option":"61","fromArg":"K8S_POD_NAME"}`, ``, dhcp.Config{ClientID: []byte("web-0")}},
		{"an argument before a value", `{"option":"12","value":"other","fromArg":"K8S_POD_NAME"},{"option":"60","value":"other","fromArg":"K8S_POD_NAME"}`, ``,
			dhcp.Config{HostName: "web-0", Options: map[uint8][]byte{60: []byte("web-0")}}},
		{"a value in place of an argument", `{"option":"12","value":"other","fromArg":"NONE"},{"option":"77","value":"b","fromArg":"NONE"}`, ``,
			dhcp.Config{HostName: "other", Options: map[uint8][]byte{77: []byte("b")}}},
		{"nothing to send", `{"option":"12","fromArg":"EMPTY"},{"option":"61","fromArg":"NONE"},{"option":"60","fromArg":"NONE"},{"option":"77"}`, ``, dhcp.Config{}},
		{"more to ask for", ``, `{"option":"42"},{"option":"routers"},{"option":"42"},{"option":"user-class"}`,
			dhcp.Config{Request: append(dhcp.DefaultRequest(), 42, 77)}},
		{"only what is asked for", ``, `{"option":"routers"},{"skipDefault":true,"option":"subnet-mask"},{"option":"3"},{"option":"121"}`,
			dhcp.Config{Request: []uint8{3, 1, 121}}},
		{"nothing to ask for", ``, `{"skipDefault":true}`, dhcp.Config{Request: []uint8{}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := clientConfig(addingWith(t, fmt.Sprintf(`{"type":"dhcp","provide":[%s],"request":[%s]}`, test.provide, test.request)))
			if err != nil {
				t.Fatal(err)
			}
			test.want.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 1}
			if test.want.HostName == "" {
				test.want.HostName = "web"
			}
			if test.want.Request == nil {
				test.want.Request = dhcp.DefaultRequest()
			}
			if diff := cmp.Diff(test.want, got, plainAddrs, cmpopts.IgnoreUnexported(dhcp.Config{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClientConfigRefuses(t *testing.T) {
	for _, test := range []struct{ name, provide, want string }{
		{"a long argument", `{"option":"60","value":"a","fromArg":"LONG"}`, "ipam.provide: option 60 has 256 bytes"},
		{"a client id that is none", `{"option":"61","fromArg":"SHORT"}`, "ipam.provide: client id has 1 bytes"},
		{"a host name that is none", `{"option":"12","value":"a b"}`, `ipam.provide: host name "a b"`},
		{"an option of the protocol", `{"option":"53","value":"a"}`, "ipam.provide: option 53"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := clientConfig(addingWith(t, fmt.Sprintf(`{"type":"dhcp","provide":[%s]}`, test.provide)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}
