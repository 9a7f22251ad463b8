// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package policy

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// onEachRelease runs a test with two pods on each release of OVN.
func onEachRelease(t *testing.T, test func(*testing.T, site)) {
	ovn25, err := lab.OVN25()
	if err != nil {
		t.Fatal(err)
	}
	for name, ovn := range map[string]string{"system": "", "25.03": ovn25} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site{t, lab.New(t, lab.Options{OVN: ovn})}
			s.addPods()
			test(t, s)
		})
	}
}

// site is a lab and the test that it is for.
type site struct {
	t *testing.T
	*lab.Lab
}

var pods = []string{"pod1", "pod2"}

func (s site) nbctl(args ...string) string {
	s.t.Helper()
	out, err := s.Nbctl(s.t.Context(), args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// addPods makes the network's switch, and two pods on it.
func (s site) addPods() {
	s.t.Helper()
	ctx, node, network := s.t.Context(), s.Nodes[0], podnet.SwitchName(testNetwork.Name)
	s.nbctl("ls-add", network, "--", "lsp-add", network, "physical", "--", "lsp-set-type", "physical", "localnet",
		"--", "lsp-set-addresses", "physical", "unknown", "--", "lsp-set-options", "physical", "network_name="+s.Phys.Network)
	for i, pod := range pods {
		mac := fmt.Sprintf("0a:00:00:00:00:%02x", i+1)
		s.nbctl("lsp-add", network, pod, "--", "lsp-set-addresses", pod, mac, "--", "lsp-set-port-security", pod, mac)
		if _, err := s.AddNetns(pod); err != nil {
			s.t.Fatal(err)
		}
		s.run(node.Command(ctx, "ip", "link", "add", pod, "type", "veth", "peer", "name", "eth0", "address", mac,
			"netns", filepath.Base(s.NetnsPath(pod))))
		s.run(node.Command(ctx, "ip", "link", "set", pod, "up"))
		s.run(s.InNetns(ctx, pod, "ethtool", "-K", "eth0", "tx", "off"))
		s.run(s.InNetns(ctx, pod, "ip", "link", "set", "eth0", "up"))
		s.run(node.Command(ctx, "ovs-vsctl", "add-port", "br-int", pod, "--", "set", "Interface", pod, "external_ids:iface-id="+pod))
		s.nbctl("wait-until", "Logical_Switch_Port", pod, "up=true")
	}
}

func (s site) run(cmd *exec.Cmd) string {
	s.t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// write inserts rows, in one transaction, with all ports in all groups. What
// each ACL and QoS rule is comes by the hint that the flows of the row have.
func (s site) write(all []nbdb.Rows) map[string]string {
	s.t.Helper()
	text := strconv.Quote
	var args []string
	add := func(a ...string) { args = append(args, append(a, "--")...) }
	described := map[string]string{}
	acls := map[string][]string{} // by group
	var rules []string
	row := func(table, direction string, priority int, match, what string, more ...string) string {
		id := fmt.Sprintf("@r%d", len(described))
		described[strconv.Itoa(len(described))] = what + ": " + match
		add(append([]string{"--id=" + id, "create", table, "direction=" + direction, fmt.Sprint("priority=", priority),
			"match=" + text(match), "external_ids:form=" + strings.TrimPrefix(id, "@r")}, more...)...)
		return id
	}
	for _, rows := range all {
		for _, a := range rows.AddressSets {
			add("create", "Address_Set", "name="+a.Name)
		}
		for _, a := range rows.ACLs {
			more := []string{"action=" + a.Action}
			for k, v := range a.Options {
				more = append(more, "options:"+k+"="+v)
			}
			acls[a.On] = append(acls[a.On], row("ACL", a.Direction, a.Priority, a.Match, a.ExternalIDs[nbdb.IDKey], more...))
		}
		for _, q := range rows.QoS {
			var more []string
			for k, v := range q.Action {
				more = append(more, fmt.Sprintf("action:%s=%d", k, v))
			}
			for k, v := range q.Bandwidth {
				more = append(more, fmt.Sprintf("bandwidth:%s=%d", k, v))
			}
			rules = append(rules, row("QoS", q.Direction, q.Priority, q.Match, q.ExternalIDs[nbdb.IDKey], more...))
		}
	}
	ports := strings.Fields(s.nbctl("--bare", "--columns=_uuid", "find", "Logical_Switch_Port", "type=\"\""))
	for _, rows := range all {
		for _, g := range rows.PortGroups {
			group := []string{"create", "Port_Group", "name=" + g.Name, "ports=" + strings.Join(ports, ",")}
			if ids := acls[g.Name]; len(ids) > 0 {
				group = append(group, "acls="+strings.Join(ids, ","))
			}
			add(group...)
		}
	}
	onSwitch := podnet.SwitchName(testNetwork.Name)
	for column, ids := range map[string][]string{"qos_rules": rules, "acls": acls[onSwitch]} {
		if len(ids) > 0 {
			add("set", "Logical_Switch", onSwitch, column+"="+strings.Join(ids, ","))
		}
	}
	s.nbctl(args[:len(args)-1]...)
	hints := map[string]string{}
	for _, table := range []string{"ACL", "QoS"} {
		for _, r := range s.list(s.nbctl("--format=json", "--columns=_uuid,external_ids", "list", table)) {
			hints[r.uuid[:8]] = described[r.ids["form"]]
		}
	}
	if len(hints) != len(described) {
		s.t.Fatalf("%d rows were written, %d are there", len(described), len(hints))
	}
	return hints
}

// fill puts addresses into every address set.
func (s site) fill(addresses ...string) {
	s.t.Helper()
	args := []string{"--wait=hv"}
	for _, uuid := range strings.Fields(s.nbctl("--bare", "--columns=_uuid", "list", "Address_Set")) {
		args = append(args, "--", "set", "Address_Set", uuid, "addresses="+strings.Join(addresses, ","))
	}
	s.nbctl(args...)
}

type listed struct {
	uuid string
	ids  map[string]string
}

// list decodes columns _uuid and external_ids.
func (s site) list(text string) []listed {
	s.t.Helper()
	var table struct {
		Data [][2][2]json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil {
		s.t.Fatalf("%v in %s", err, text)
	}
	var out []listed
	for _, row := range table.Data {
		l := listed{ids: map[string]string{}}
		var pairs [][2]string
		if json.Unmarshal(row[0][1], &l.uuid) != nil || json.Unmarshal(row[1][1], &pairs) != nil {
			s.t.Fatalf("row %s", row)
		}
		for _, p := range pairs {
			l.ids[p[0]] = p[1]
		}
		out = append(out, l)
	}
	return out
}
