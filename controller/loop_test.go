// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

const (
	mac1  = "0a:00:00:00:00:01"
	port1 = "ns.net_ns_p1"
)

// bench is a loop at work on a rowStore, within a synctest bubble.
type bench struct {
	t    *testing.T
	m    *memory
	db   *rowStore
	zone string
	stop func()

	// prepare changes the loop before it starts, if set.
	prepare func(l *loop, m *memory)
	pending *pending
}

// startBench runs the test in a bubble, on objects that exist at the start.
func startBench(t *testing.T, test func(b *bench), objects ...string) {
	startBenchInZone(t, "", test, objects...)
}

func startBenchInZone(t *testing.T, zone string, test func(b *bench), objects ...string) {
	(&bench{zone: zone}).run(t, test, objects...)
}

// run runs the test with b in a bubble, on objects that exist at the start.
func (b *bench) run(t *testing.T, test func(b *bench), objects ...string) {
	synctest.Test(t, func(t *testing.T) {
		b.t, b.m, b.db = t, newMemory(), &rowStore{}
		for _, o := range objects {
			b.m.set(t, o)
		}
		b.start()
		defer func() { b.stop() }()
		test(b)
	})
}

func (b *bench) start() {
	ctx, cancel := context.WithCancel(b.t.Context())
	p := newPending()
	b.db.changed = p.addOwner
	m, err := newMetrics(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	l := newLoop(Config{Source: b.m, PluginType: DefaultPluginType, Zone: b.zone, Log: slog.New(slog.DiscardHandler)}, p, m)
	b.pending = p
	if b.prepare != nil {
		b.prepare(l, b.m)
	}
	done := make(chan struct{})
	go b.m.Run(ctx, p.addObject, p.setSynced)
	go l.learning.errands.run(ctx)
	go func() {
		defer close(done)
		if err := l.run(ctx, b.db); ctx.Err() == nil {
			b.t.Errorf("loop ended: %v", err)
		}
	}()
	b.stop = func() { cancel(); <-done; synctest.Wait() }
	synctest.Wait()
}

// names are those of all rows, after everything has settled.
func (b *bench) names() []string {
	synctest.Wait()
	var names []string
	b.db.do(func() {
		for _, r := range b.db.rows.Switches {
			names = append(names, r.Name)
		}
		for _, r := range b.db.rows.Ports {
			names = append(names, r.Name)
		}
	})
	slices.Sort(names)
	return names
}

var network = []string{"net_ovn_localnet_port", "net_ovn_localnet_switch"}

func (b *bench) wantRows(when string, names ...string) {
	b.t.Helper()
	slices.Sort(names)
	if d := cmp.Diff(names, b.names()); d != "" {
		b.t.Errorf("rows %s (-want +got):\n%s", when, d)
	}
}

func (b *bench) wantNetworkAnd(when string, ports ...string) {
	b.t.Helper()
	b.wantRows(when, slices.Concat(network, ports)...)
}

func (b *bench) wantProblem(when, reason string) {
	b.t.Helper()
	synctest.Wait()
	got := b.m.reported()
	if reason == "" && got != "" || !strings.Contains(got, reason) {
		b.t.Errorf("problems %s: want %q, got\n%s", when, reason, got)
	}
}

func (b *bench) wantTransactions(want int) {
	b.t.Helper()
	b.db.do(func() {
		if got := b.db.transactions; got != want {
			b.t.Errorf("%d transactions so far, want %d", got, want)
		}
	})
}

func TestRestartInStepWritesNothing(t *testing.T) {
	startBench(t, func(b *bench) {
		b.wantNetworkAnd("at first", port1)
		b.wantTransactions(2) // the network, then what is on it
		b.stop()
		b.start()
		b.wantNetworkAnd("after a restart", port1)
		b.wantTransactions(2)
	}, netNAD, podYAML("p1", mac1, "192.0.2.1/24"))
}

func TestPortOfPodThatIsGone(t *testing.T) {
	completed := strings.Replace(podYAML("p1", mac1, ""), "Running", "Succeeded", 1)
	noEntry := strings.Replace(podYAML("p1", mac1, ""), "ns/net", "ns/other", 1)
	for name, end := range map[string]func(b *bench){
		"deleted":   func(b *bench) { b.m.remove(kindPod, "ns/p1") },
		"completed": func(b *bench) { b.m.set(b.t, completed) },
		"no entry":  func(b *bench) { b.m.set(b.t, noEntry) },
		"no NAD":    func(b *bench) { b.m.remove(kindNAD, "ns/net"); b.m.remove(kindPod, "ns/p1") },
	} {
		t.Run(name, func(t *testing.T) {
			startBench(t, func(b *bench) {
				b.db.setUp(t, port1, true)
				synctest.Wait()
				before := b.db.String()
				end(b)
				time.Sleep(unboundAfter - time.Millisecond)
				synctest.Wait()
				if d := cmp.Diff(before, b.db.String()); d != "" {
					t.Errorf("rows just before the time is up (-before +now):\n%s", d)
				}
				time.Sleep(2 * time.Millisecond)
				if name == "no NAD" {
					b.wantRows("when the time is up")
				} else {
					b.wantNetworkAnd("when the time is up")
				}
			}, netNAD, podYAML("p1", mac1, ""))
		})
	}
}

func TestPortGoesWhenUnbound(t *testing.T) {
	startBench(t, func(b *bench) {
		b.db.setUp(t, port1, true)
		b.m.remove(kindPod, "ns/p1")
		time.Sleep(time.Second)
		b.wantNetworkAnd("while the port is bound", port1)
		b.db.setUp(t, port1, false)
		b.wantNetworkAnd("when it is unbound")
	}, netNAD, podYAML("p1", mac1, ""))
}

func TestPodComesBack(t *testing.T) {
	startBench(t, func(b *bench) {
		b.db.setUp(t, port1, true)
		for range 3 { // each time has thirty seconds of its own
			b.m.remove(kindPod, "ns/p1")
			time.Sleep(unboundAfter - time.Second)
			b.wantNetworkAnd("while the pod is gone", port1)
			b.m.set(t, podYAML("p1", mac1, "192.0.2.1/24"))
			time.Sleep(time.Minute)
			b.wantNetworkAnd("when the pod is back", port1)
		}
	}, netNAD, podYAML("p1", mac1, ""))
}

func TestNetworkGoesAfterItsPorts(t *testing.T) {
	startBench(t, func(b *bench) {
		b.db.setUp(t, port1, true)
		b.m.remove(kindNAD, "ns/net")
		b.wantNetworkAnd("while a port is bound", port1)
		b.wantProblem("without NAD", ReasonNetworkUnusable)
		b.db.setUp(t, port1, false)
		b.wantNetworkAnd("while the pod is there", port1)
		b.m.remove(kindPod, "ns/p1")
		b.wantRows("without the pod")
		b.m.set(t, netNAD)
		b.m.set(t, podYAML("p1", mac1, ""))
		b.wantNetworkAnd("with both again", port1)
		b.wantProblem("with both again", "")
	}, netNAD, podYAML("p1", mac1, ""))
}

func TestBrokenInputKeepsRows(t *testing.T) {
	good := podYAML("p1", mac1, "192.0.2.1/24")
	for name, tt := range map[string]struct{ broken, reason string }{
		"annotation":  {strings.Replace(good, `'{"ns`, `'{{"ns`, 1), ReasonInvalidAnnotation},
		"MAC address": {strings.Replace(good, mac1, "x", 1), ReasonInvalidAnnotation},
		"NAD":         {strings.Replace(netNAD, `"ipam"`, `"vlanID":-1,"ipam"`, 1), ReasonInvalidConfig},
	} {
		t.Run(name, func(t *testing.T) {
			startBench(t, func(b *bench) {
				before := b.db.String()
				b.m.set(t, tt.broken)
				time.Sleep(time.Hour)
				b.wantProblem("while it is broken", tt.reason)
				if d := cmp.Diff(before, b.db.String()); d != "" {
					t.Errorf("rows while it is broken (-before +now):\n%s", d)
				}
				b.m.set(t, podYAML("p2", "0a:00:00:00:00:02", ""))
				if name != "NAD" {
					b.wantNetworkAnd("with another pod", port1, "ns.net_ns_p2")
				}
				b.m.set(t, netNAD)
				b.m.set(t, good)
				b.wantNetworkAnd("when all is well", port1, "ns.net_ns_p2")
				b.wantProblem("when all is well", "")
				b.wantTransactions(3) // network, port, other port
			}, netNAD, good)
		})
	}
}

func TestProblemOfAnEarlierRunIsCleared(t *testing.T) {
	startBench(t, func(b *bench) {
		b.stop()
		b.m.problems[podObject("ns/p1")] = map[string]string{ReasonMACInUse: "once"}
		b.start()
		b.wantProblem("after a restart", "")
		b.m.set(t, strings.Replace(podYAML("p1", mac1, ""), mac1, "x", 1))
		b.wantProblem("of a pod", ReasonInvalidAnnotation)
		b.m.remove(kindPod, "ns/p1")
		b.wantProblem("of a pod that is gone", "")
	}, netNAD, podYAML("p1", mac1, ""))
}

func TestMACPassesToNextPod(t *testing.T) {
	startBench(t, func(b *bench) {
		b.m.set(t, podYAML("a", mac1, ""))
		b.wantNetworkAnd("with two pods", port1)
		b.wantProblem("with two pods", "MAC address 0a:00:00:00:00:01 is in use on network \"net\" by pod ns/p1")
		b.db.setUp(t, port1, true)
		b.m.remove(kindPod, "ns/p1")
		b.wantNetworkAnd("while the old port is bound", port1)
		b.db.setUp(t, port1, false)
		b.wantNetworkAnd("when it is not", "ns.net_ns_a")
		b.wantProblem("with one pod", "")
		b.m.set(t, podYAML("b", mac1, ""))
		b.wantProblem("with two pods again", ReasonMACInUse)
		b.m.set(t, podYAML("a", "0a:00:00:00:00:0a", ""))
		b.wantNetworkAnd("when the first changes its MAC", "ns.net_ns_a", "ns.net_ns_b")
		b.wantProblem("when the first changes its MAC", "")
	}, netNAD, podYAML("p1", mac1, ""))
}

// Names that collide are taken over only once they are free.
func TestCollidingNetworkWaits(t *testing.T) {
	named := func(nad, network string) string {
		return strings.NewReplacer("name: net", "name: "+nad, "ns/net", "ns/"+nad, `"net"`, `"`+network+`"`).Replace(netNAD)
	}
	pod := strings.Replace(podYAML("p1", mac1, ""), "ns/net", "ns/n1", 1)
	startBench(t, func(b *bench) {
		rows := []string{"a.b_ovn_localnet_port", "a.b_ovn_localnet_switch", "ns.n1_ns_p1"}
		b.wantRows("with two networks", rows...)
		b.wantProblem("with two networks", ReasonNameCollision)
		b.db.setUp(t, "ns.n1_ns_p1", true)
		b.m.remove(kindNAD, "ns/n1")
		b.wantRows("while the first one's port is bound", rows...)
		if got := b.db.String(); !strings.Contains(got, `owner = "network/a-b"`) {
			t.Errorf("the switch is not network/a-b's:\n%s", got)
		}
		b.db.setUp(t, "ns.n1_ns_p1", false)
		b.wantRows("while its pod is there", rows...)
		b.m.remove(kindPod, "ns/p1")
		b.wantRows("when it is gone", rows[:2]...)
		if got := b.db.String(); !strings.Contains(got, `owner = "network/a.b"`) {
			t.Errorf("the switch is not network/a.b's:\n%s", got)
		}
		if got := b.m.reported(); got != "" {
			t.Errorf("problems in the end:\n%s", got)
		}
	}, named("n1", "a-b"), named("n2", "a.b"), pod)
}

func TestRefusedTransaction(t *testing.T) {
	objects := []string{netNAD}
	var others []string
	for i := range 9 {
		objects = append(objects, podYAML(fmt.Sprintf("p%d", i), fmt.Sprintf("0a:00:00:00:00:%02d", i), ""))
		if i != 4 {
			others = append(others, fmt.Sprintf("ns.net_ns_p%d", i))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, m: newMemory(), db: &rowStore{}}
		b.db.refuse = func(c nbdb.Change) bool { return c.Key == "port/ns/net/ns/p4" }
		b.m.set(t, strings.Join(objects, "\n---\n"))
		b.start()
		defer func() { b.stop() }()
		b.wantNetworkAnd("while one is refused", others...)
		b.wantProblem("while one is refused", "Pod ns/p4: "+ReasonRefused)
		var first, more int
		b.db.do(func() { first = b.db.refused })
		if first > 5 { // 9, 5, 2 or 3, ..., 1
			t.Errorf("%d transactions refused to find one of 9", first)
		}
		time.Sleep(62 * time.Second) // 1 + 2 + 4 + 8 + 16 + 30 and a little
		synctest.Wait()
		if b.db.do(func() { more = b.db.refused - first }); more != 6 {
			t.Errorf("tried %d more times within 62 s, want 6", more)
		}
		b.m.set(t, podYAML("late", "0a:00:00:00:00:99", ""))
		b.wantNetworkAnd("while one is refused", append(others, "ns.net_ns_late")...)
		b.db.do(func() { b.db.refuse = nil })
		time.Sleep(maxRetry)
		b.wantNetworkAnd("in the end", append(others, "ns.net_ns_late", "ns.net_ns_p4")...)
		b.wantProblem("in the end", "")
	})
}

// Whatever the database refuses, a port is never there without the groups of the
// policies that deny it something, and what is not to blame goes through.
func TestRefusedPortGroups(t *testing.T) {
	const pods = 5
	deny := `
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: ns, name: deny, annotations: {k8s.v1.cni.cncf.io/policy-for: net}}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
`
	objects := []string{netNAD, deny}
	var all []string
	for i := range pods {
		objects = append(objects, podYAML(fmt.Sprintf("p%d", i), fmt.Sprintf("0a:00:00:00:00:%02d", i), fmt.Sprintf("192.0.2.%d/24", i+1)))
		all = append(all, fmt.Sprintf("ns.net_ns_p%d", i))
	}
	for refused, through := range map[string][]string{
		"port/ns/net/ns/p3":  slices.Concat(all[:3], all[4:]),
		"deny/net/ns/Egress": nil,
		"policy/net/ns/deny": nil,
	} {
		t.Run(refused, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{t: t, m: newMemory(), db: &rowStore{}}
				b.db.refuse = func(c nbdb.Change) bool { return c.Key == refused }
				b.db.made = func() {
					for _, p := range b.db.rows.Ports {
						groups := slices.DeleteFunc(slices.Clone(b.db.rows.PortGroups), func(g nbdb.PortGroup) bool { return !g.Ports.Has(p.Name) })
						if p.Type == "" && len(groups) != 3 { // the policy's, and one for each direction
							t.Errorf("port %s is in groups %v", p.Name, groups)
						}
					}
				}
				b.m.set(t, strings.Join(objects, "\n---\n"))
				b.start()
				defer func() { b.stop() }()
				time.Sleep(2 * time.Minute)
				b.wantNetworkAnd("while a group of rows is refused", through...)
				b.wantProblem("while a group of rows is refused", ReasonRefused)
				b.db.do(func() { b.db.refuse = nil })
				time.Sleep(2 * maxRetry)
				b.wantNetworkAnd("in the end", all...)
				b.wantProblem("in the end", "")
			})
		})
	}
}

func TestTamperedRowsAreRepaired(t *testing.T) {
	startBench(t, func(b *bench) {
		before := b.db.String()
		b.db.do(func() {
			for i := range b.db.rows.Ports {
				b.db.rows.Ports[i].Addresses = []string{"router"}
				b.db.changed(b.db.rows.Ports[i].Owner)
			}
		})
		synctest.Wait()
		if d := cmp.Diff(before, b.db.String()); d != "" {
			t.Errorf("after changes of rows (-want +got):\n%s", d)
		}
		b.db.do(func() {
			b.db.rows = nbdb.Rows{}
			b.db.changed("network/net")
		})
		synctest.Wait()
		if d := cmp.Diff(before, b.db.String()); d != "" {
			t.Errorf("after the removal of all (-want +got):\n%s", d)
		}
	}, netNAD, podYAML("p1", mac1, ""))
}

func TestChassisAnnotation(t *testing.T) {
	startBench(t, func(b *bench) {
		for _, want := range []string{"c1", "c2"} {
			b.m.set(t, "kind: Node\nmetadata: {name: n1, annotations: {k8s.ovn.org/node-chassis-id: "+want+"}}")
			synctest.Wait()
			if got := b.db.String(); !strings.Contains(got, `requested-chassis = "`+want) {
				t.Errorf("requested-chassis is not %s in\n%s", want, got)
			}
		}
	}, netNAD, podYAML("p1", mac1, ""))
}

func TestNodeChangesZone(t *testing.T) {
	node := func(zone string) string {
		return "kind: Node\nmetadata: {name: n1, annotations: {k8s.ovn.org/zone-name: " + zone + "}}"
	}
	broken := strings.Replace(podYAML("p2", "0a:00:00:00:00:02", ""), `'{"ns`, `'{{"ns`, 1)
	startBenchInZone(t, "z1", func(b *bench) {
		b.wantNetworkAnd("without the node")
		b.m.set(t, node("z2"))
		b.wantNetworkAnd("in another zone")
		b.wantProblem("in another zone", "")
		b.m.set(t, node("z1"))
		b.wantNetworkAnd("in our zone", port1)
		b.wantProblem("in our zone", ReasonInvalidAnnotation)
		b.m.remove(kindNode, "/n1")
		b.wantNetworkAnd("when the node is gone", port1)
		b.db.setUp(t, port1, true)
		b.m.set(t, node("z2"))
		b.wantNetworkAnd("in another zone, while bound", port1)
		b.wantProblem("in another zone again", "")
		b.db.setUp(t, port1, false)
		b.wantNetworkAnd("in another zone again")
	}, netNAD, podYAML("p1", mac1, ""), broken)
}

func TestMACOfAnotherZone(t *testing.T) {
	nodes := "kind: Node\nmetadata: {name: n1, annotations: {k8s.ovn.org/zone-name: z1}}\n---\n" +
		"kind: Node\nmetadata: {name: n2, annotations: {k8s.ovn.org/zone-name: z2}}"
	elsewhere := func(address string) string {
		return strings.Replace(podYAML("q", mac1, address), "n1", "n2", 1)
	}
	startBenchInZone(t, "z1", func(b *bench) {
		b.wantNetworkAnd("while the other is not bound", port1)
		b.m.set(t, elsewhere("192.0.2.1/24"))
		b.wantNetworkAnd("as its port is there", port1)
		b.wantProblem("as its port is there", "")
		b.m.remove(kindPod, "ns/p1")
		b.m.set(t, podYAML("p2", mac1, ""))
		b.wantNetworkAnd("while the other is bound")
		b.wantProblem("while the other is bound", "by pod ns/q")
		// Only that the pod is elsewhere tells that it is bound.
		b.m.set(t, strings.Replace(nodes, "z2", "z1", 1))
		b.wantNetworkAnd("when both are here", "ns.net_ns_p2")
		b.wantProblem("when both are here", "Pod ns/q: "+ReasonMACInUse)
		b.m.remove(kindPod, "ns/p2")
		b.wantNetworkAnd("in the end", "ns.net_ns_q")
		b.wantProblem("in the end", "")
	}, netNAD, nodes, podYAML("p1", mac1, ""), elsewhere(""))
}

// After a start there is one report on each object, right from the start.
func TestReports(t *testing.T) {
	objects := []string{netNAD, strings.NewReplacer("name: net", "name: other", `"net"`, `"other"`).Replace(netNAD)}
	for i := range 9 {
		objects = append(objects, podYAML(fmt.Sprintf("p%d", i), fmt.Sprintf("0a:00:00:00:00:%02d", i), ""))
	}
	objects = append(objects, podYAML("twin", "0a:00:00:00:00:01", ""))
	startBench(t, func(b *bench) {
		reports := func() int {
			synctest.Wait()
			b.m.mu.Lock()
			defer b.m.mu.Unlock()
			return b.m.reports
		}
		b.wantProblem("at first", "Pod ns/twin: "+ReasonMACInUse)
		b.wantProblem("at first", "ns/other: "+ReasonInvalidConfig)
		before := reports()
		if before != len(objects) {
			t.Errorf("%d reports at first on %d objects", before, len(objects))
		}
		b.stop()
		b.start()
		if got := reports() - before; got != len(objects) {
			t.Errorf("%d reports after a restart on %d objects", got, len(objects))
		}
		before = reports()
		b.m.set(t, strings.Join(objects, "\n---\n"))
		time.Sleep(time.Hour)
		if got := reports() - before; got != 0 {
			t.Errorf("%d reports when nothing has changed", got)
		}
	}, objects...)
}

func TestNew(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, cfg := range map[string]Config{
		"no source":    {NB: "unix:/nb", Log: log},
		"no log":       {NB: "unix:/nb", Source: newMemory()},
		"bad endpoint": {NB: "nb", Source: newMemory(), Log: log},
		"no files":     {NB: "ssl:10.0.0.1:6641", Source: newMemory(), Log: log},
		"no election":  {NB: "unix:/nb", Source: newMemory(), Leader: "a", Log: log},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A NAD that comes later does not take a network over, though it sorts first,
// and neither does it after a restart.
func TestNetworkKeepsItsNAD(t *testing.T) {
	rival := strings.NewReplacer("name: net", "name: aaa", "ns/net", "ns/aaa", `"topology"`, `"vlanID": 77, "topology"`).Replace(netNAD)
	startBench(t, func(b *bench) {
		check := func(when string) {
			t.Helper()
			b.wantProblem(when, "NetworkAttachmentDefinition ns/aaa: "+ReasonConflictingConfig)
			if got := b.db.String(); strings.Contains(got, "tag_request") || !strings.Contains(got, `ovn-dhcp-ipam/nad = "ns/net"`) {
				t.Errorf("%s:\n%s", when, got)
			}
		}
		b.m.set(t, rival)
		check("when the rival comes")
		b.stop()
		b.start()
		check("after a restart")
	}, netNAD)
}

// A running pod keeps its port when its NAD is deleted.
func TestDeletedNADCutsNobodyOff(t *testing.T) {
	startBench(t, func(b *bench) {
		b.db.setUp(t, "ns.net_ns_p1", true)
		before := b.db.String()
		b.m.remove(kindNAD, "ns/net")
		time.Sleep(2 * unboundAfter)
		synctest.Wait()
		if diff := cmp.Diff(before, b.db.String()); diff != "" {
			t.Errorf("rows (-before +after):\n%s", diff)
		}
		b.wantProblem("without the NAD", "Pod ns/p1: "+ReasonNetworkUnusable)
	}, netNAD, podYAML("p1", mac1, "10.0.0.1/24"))
}

// While pods are on a network, no other NAD turns it over, also not when the one
// that it is made of is deleted or broken for a while, or after a restart.
func TestNobodyTurnsANetworkOver(t *testing.T) {
	rival := strings.NewReplacer("name: net", "name: aaa", "ns/net", "ns/aaa", `"topology"`, `"vlanID": 77, "topology"`).Replace(netNAD)
	startBench(t, func(b *bench) {
		b.db.setUp(t, "ns.net_ns_p1", true)
		before := b.db.String()
		same := func(when string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(before, b.db.String()); diff != "" {
				t.Errorf("rows %s (-before +after):\n%s", when, diff)
			}
			b.wantProblem(when, "NetworkAttachmentDefinition ns/aaa: "+ReasonConflictingConfig)
		}
		b.m.set(t, rival)
		same("with a rival")
		b.m.set(t, strings.Replace(netNAD, `"topology":"localnet"`, `"topology":"layer2"`, 1))
		same("while the NAD is broken")
		b.m.remove(kindNAD, "ns/net")
		same("without the NAD")
		b.stop()
		b.start()
		same("after a restart")
		b.m.set(t, netNAD)
		same("with the NAD again")
		b.m.remove(kindNAD, "ns/net")
		b.m.remove(kindPod, "ns/p1")
		b.db.setUp(t, "ns.net_ns_p1", false)
		synctest.Wait()
		if got := b.db.String(); !strings.Contains(got, "tag_request = 77") {
			t.Errorf("when all is free the rival has its turn:\n%s", got)
		}
	}, netNAD, podYAML("p1", mac1, "10.0.0.1/24"))
}
