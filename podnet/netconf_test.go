// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// valid is a configuration with a placeholder where a case puts its own fields.
const valid = `{"cniVersion":"1.1.0","name":"lan","type":"ovn-k8s-cni-overlay","netAttachDefName":"ns/lan","topology":"localnet","ipam":{"type":"dhcp"}%s}`

func config(extra string) []byte {
	if extra != "" {
		extra = "," + extra
	}
	return []byte(strings.Replace(valid, "%s", extra, 1))
}

func TestParseNetConf(t *testing.T) {
	conf, err := ParseNetConf(config(`"role":"secondary","physicalNetworkName":"physnet","vlanID":7,"mtu":9000,"unknown":{"x":1},
		"ipam":{"type":"dhcp","provide":[{"option":"dhcp-client-identifier","value":"abc"},{"option":"77","value":"x","fromArg":"K8S_POD_NAME"},{"option":"60"}],"request":[{"skipDefault":true},{"option":"42"}],"priority":50}`))
	if err != nil {
		t.Fatal(err)
	}
	got := []any{conf.Name, conf.Type, conf.CNIVersion, conf.NADName, conf.PhysicalNetworkName, conf.VLANID, conf.MTU, conf.DHCP}
	want := []any{"lan", "ovn-k8s-cni-overlay", "1.1.0", "ns/lan", "physnet", 7, 9000, IPAM{
		Type:     "dhcp",
		Provide:  []ProvideOption{{Option: "dhcp-client-identifier", Value: "abc"}, {Option: "77", Value: "x", FromArg: "K8S_POD_NAME"}, {Option: "60"}},
		Request:  []RequestOption{{SkipDefault: true}, {Option: "42"}},
		Priority: 50,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseNetConfDefaults(t *testing.T) {
	conf, err := ParseNetConf(config(""))
	if err != nil {
		t.Fatal(err)
	}
	if conf.MTU != 1500 || conf.PhysicalNetworkName != "lan" || conf.VLANID != 0 {
		t.Errorf("got MTU %d, physical network %q, VLAN %d", conf.MTU, conf.PhysicalNetworkName, conf.VLANID)
	}
}

func TestParseNetConfRefuses(t *testing.T) {
	for _, test := range []struct{ name, config, want string }{
		{"no JSON", `{"name":`, "not valid JSON"},
		{"wrong type", string(config(`"mtu":"big"`)), "mtu"},
		{"ipam is no object", string(config(`"ipam":"dhcp"`)), "ipam"},
		{"another ipam", string(config(`"ipam":{"type":"whereabouts"}`)), `ipam.type: Invalid value: "whereabouts"`},
		{"no ipam", strings.Replace(string(config("")), `{"type":"dhcp"}`, `{}`, 1), `ipam.type: Invalid value: ""`},
		{"subnets", string(config(`"subnets":"10.0.0.0/24"`)), `subnets: Invalid value: "10.0.0.0/24"`},
		{"excludeSubnets", string(config(`"excludeSubnets":"10.0.0.0/30"`)), `excludeSubnets: Invalid value: "10.0.0.0/30"`},
		{"topology", string(config(`"topology":"layer2"`)), `topology: Invalid value: "layer2"`},
		{"learn", string(config(`"learn":"some"`)), `learn: Invalid value: "some"`},
		{"role", string(config(`"role":"primary"`)), `role: Invalid value: "primary"`},
		{"persistent", string(config(`"allowPersistentIPs":true`)), "allowPersistentIPs: Invalid value: true"},
		{"device that is none", string(config(`"deviceID":"../0000:01:10.0"`)), `deviceID: Invalid value: "../0000:01:10.0"`},
		{"device in upper case", string(config(`"deviceID":"0000:3B:10.0"`)), `deviceID: Invalid value: "0000:3B:10.0"`},
		{"device without domain", string(config(`"deviceID":"01:10.0"`)), `deviceID: Invalid value: "01:10.0"`},
		{"device that can't be", string(config(`"deviceID":"0000:01:20.0"`)), `deviceID: Invalid value: "0000:01:20.0"`},
		{"NAD without namespace", string(config(`"netAttachDefName":"lan"`)), `netAttachDefName: Invalid value: "lan"`},
		{"NAD with three parts", string(config(`"netAttachDefName":"a/b/c"`)), `netAttachDefName: Invalid value: "a/b/c"`},
		{"physical network", string(config(`"physicalNetworkName":"a:b"`)), `physicalNetworkName: Invalid value: "a:b"`},
		{"VLAN too high", string(config(`"vlanID":4095`)), "vlanID: Invalid value: 4095"},
		{"VLAN negative", string(config(`"vlanID":-1`)), "vlanID: Invalid value: -1"},
		{"MTU too low", string(config(`"mtu":100`)), "mtu: Invalid value: 100"},
		{"network name", string(config(`"name":"a b"`)), `name: Invalid value: "a b"`},
		{"option name", string(config(`"ipam":{"type":"dhcp","provide":[{"option":"nonsense","value":"x"}]}`)), `ipam.provide[0].option: Invalid value: "nonsense"`},
		{"option too long", string(config(`"ipam":{"type":"dhcp","provide":[{"option":"60","value":"` + strings.Repeat("x", 256) + `"}]}`)), "ipam.provide[0].value: Too long"},
		{"requested option", string(config(`"ipam":{"type":"dhcp","request":[{"option":"255"}]}`)), `ipam.request[0].option: Invalid value: "255"`},
		{"priority negative", string(config(`"ipam":{"type":"dhcp","priority":-1}`)), "ipam.priority: Invalid value: -1"},
		{"priority too high", string(config(`"ipam":{"type":"dhcp","priority":4294967296}`)), "ipam.priority: Invalid value: 4294967296"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseNetConf([]byte(test.config))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestAllWrongFieldsAreNamed(t *testing.T) {
	_, err := ParseNetConf(config(`"topology":"layer3","role":"primary","mtu":1`))
	for _, name := range []string{"topology", "role", "mtu"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v does not name %s", err, name)
		}
	}
}

func FuzzParseNetConf(f *testing.F) {
	f.Add(config(""))
	f.Add(config(`"ipam":{"type":"dhcp","provide":[{"option":"12","value":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		conf, err := ParseNetConf(data)
		if err != nil {
			return
		}
		if conf.Topology != TopologyLocalnet || conf.DHCP.Type != IPAMTypeDHCP || conf.Name == "" || conf.MTU < minMTU || conf.VLANID > maxVLAN {
			t.Errorf("accepted %s as %+v", data, conf)
		}
	})
}
