// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/sbdb"
)

const mac2 = "0a:00:00:00:00:02"

// learnNAD is netNAD with a learner.
var learnNAD = strings.Replace(netNAD, `"topology"`, `"learn":"all","topology"`, 1)

// vmYAML is podYAML of a virtual machine, whose entry has this state.
func vmYAML(name, mac, address, state string) string {
	y := strings.Replace(podYAML(name, mac, address), "  annotations:", "  labels: {vm.kubevirt.io/name: "+name+"}\n  annotations:", 1)
	return strings.Replace(y, `"ipam_mode":"dhcp"`, `"ipam_mode":"dhcp","gateway_ips":["192.0.2.254"],"dhcp":{"state":"`+state+`","server":"192.0.2.253"}`, 1)
}

// lesson is the n-th that a learner had of mac1.
func lesson(n int, ip string) sbdb.Lesson {
	return sbdb.Lesson{UUID: fmt.Sprint("lesson", n), MAC: mac1, IP: netip.MustParseAddr(ip), Time: time.Unix(int64(n), 0)}
}

func TestConclude(t *testing.T) {
	var flood, outside []sbdb.Lesson
	for n := range floodLimit + 1 {
		outside = append(outside, lesson(n, fmt.Sprintf("fe80::%d", n)))
		flood = append(flood, lesson(n, fmt.Sprintf("192.0.2.%d", 100+n)))
	}
	open := vmYAML("p1", mac1, "192.0.2.1/24", podnet.StateOpen)
	for _, test := range []struct {
		name    string
		nad     string
		objects []string
		lessons []sbdb.Lesson
		port    bool
		accept  string
		refused string // part of it
		dropped int
		useless int // of those that are dropped, where something is accepted
		flood   bool
	}{
		{name: "another address", objects: []string{open}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.1"), lesson(2, "192.0.2.7")},
			port: true, accept: "192.0.2.7/24", dropped: 1},
		{name: "the latest counts", objects: []string{open}, lessons: []sbdb.Lesson{lesson(3, "192.0.2.8"), lesson(2, "192.0.2.7")},
			port: true, accept: "192.0.2.8/24", dropped: 1},
		{name: "its own, which OVN announces", objects: []string{open}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.1")}, port: true},
		{name: "nothing", objects: []string{open}, port: true},
		{name: "gateway", objects: []string{open}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.254")}, port: true, refused: "gateway"},
		{name: "DHCP server", objects: []string{open}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.253")}, port: true, refused: "DHCP server"},
		{name: "off the subnet", objects: []string{open}, lessons: []sbdb.Lesson{lesson(1, "198.51.100.1")}, port: true, refused: "outside"},
		{name: "a neighbour's", objects: []string{open, podYAML("p2", mac2, "192.0.2.2/24")}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.2")},
			port: true, refused: "pod ns/p2 has it"},
		{name: "another lease's gateway", objects: []string{open, strings.Replace(podYAML("p2", mac2, "192.0.2.2/24"), `"ipam_mode"`, `"gateway_ips":["192.0.2.200"],"ipam_mode"`, 1)},
			lessons: []sbdb.Lesson{lesson(1, "192.0.2.200")}, port: true, refused: "gateway"},
		{name: "no address yet, but a neighbour's subnet", objects: []string{vmYAML("p1", mac1, "", podnet.StateOpen), podYAML("p2", mac2, "192.0.2.2/25")},
			lessons: []sbdb.Lesson{lesson(1, "192.0.2.7")}, port: true, accept: "192.0.2.7/25"},
		{name: "no subnet", objects: []string{vmYAML("p1", mac1, "", podnet.StateOpen)}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.7")},
			port: true, refused: "subnet is not known"},
		{name: "pinned", objects: []string{vmYAML("p1", mac1, "192.0.2.1/24", podnet.StateBound)}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.7")},
			port: true, dropped: 1},
		{name: "neighbor discovery and a probe hide nothing", objects: []string{open}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.7"), lesson(2, "fe80::1"), lesson(3, "0.0.0.0")},
			port: true, accept: "192.0.2.7/24", dropped: 2, useless: 1},
		{name: "flood of neighbor discovery", objects: []string{open}, lessons: outside, port: true, dropped: floodLimit + 1},
		{name: "neighbor discovery of nobody's", objects: []string{podYAML("p2", mac2, "192.0.2.2/24")}, lessons: outside, dropped: floodLimit + 1},
		{name: "flood", objects: []string{open}, lessons: flood, port: true, dropped: floodLimit + 1, flood: true},
		{name: "flood of one that is not learned about", objects: []string{podYAML("p1", mac1, "")}, lessons: flood, port: true, dropped: floodLimit + 1, flood: true},
		{name: "a pod's own", objects: []string{podYAML("p1", mac1, "192.0.2.1/24")}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.7")}},
		{name: "nobody's", objects: []string{podYAML("p2", mac2, "192.0.2.2/24")}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.7")}},
		{name: "two have the MAC address", objects: []string{open, vmYAML("p2", mac1, "", podnet.StateOpen)}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.7")}},
		{name: "not on this network", nad: netNAD, objects: []string{open}, lessons: []sbdb.Lesson{lesson(1, "192.0.2.7")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMemory()
			m.set(t, learnNAD)
			if test.nad != "" {
				m.set(t, test.nad)
			}
			for _, o := range test.objects {
				m.set(t, o)
			}
			in := load(m, DefaultPluginType, "")
			k := portKey("ns/net", "ns", "p1")
			in.observe(k, in.desired(k).rows)
			c := in.conclude(time.Unix(100, 0), "net", mac1, test.lessons)
			if (c.port == k) != test.port || c.port != k && c.port != (key{}) {
				t.Fatalf("port %v", c.port)
			}
			if got := c.accept; test.accept == "" && got.IsValid() || test.accept != "" && got != netip.MustParsePrefix(test.accept) {
				t.Errorf("accepted %v, want %q", got, test.accept)
			}
			if (c.refused == "") != (test.refused == "") || !strings.Contains(c.refused, test.refused) {
				t.Errorf("refused %q, want %q", c.refused, test.refused)
			}
			if len(c.superseded)+len(c.useless) != test.dropped || c.accept.IsValid() && len(c.superseded) != test.dropped-test.useless {
				t.Errorf("superseded %v and useless %v, want %d in all and %d useless", c.superseded, c.useless, test.dropped, test.useless)
			}
			if c.flood != test.flood {
				t.Errorf("flood is %v", c.flood)
			}
		})
	}
}

// school is a southbound database whose state the test sets.
type school struct {
	mu       sync.Mutex
	loop     *loop
	failures int // how many times an annotation can't be written
	bindings map[string]sbdb.Binding
	lessons  []sbdb.Lesson
	learners map[string]bool
}

func (s *school) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *school) Binding(port string) (b sbdb.Binding, known bool) {
	s.do(func() { b, known = s.bindings[port] })
	return b, known
}

func (s *school) Lessons(_, mac string) (out []sbdb.Lesson) {
	s.do(func() {
		for _, l := range s.lessons {
			if l.MAC == mac {
				out = append(out, l)
			}
		}
	})
	return out
}

func (s *school) SetLearners(ports map[string]bool) { s.do(func() { s.learners = ports }) }

func (s *school) Unlearn(_ context.Context, lessons ...sbdb.Lesson) error {
	s.do(func() {
		var kept []sbdb.Lesson
		for _, have := range s.lessons {
			keep := true
			for _, l := range lessons {
				keep = keep && l != have
			}
			if keep {
				kept = append(kept, have)
			}
		}
		s.lessons = kept
	})
	return nil
}

// startSchool is startBench with a southbound database.
func startSchool(t *testing.T, test func(b *bench, s *school), objects ...string) {
	s := &school{bindings: map[string]sbdb.Binding{}}
	(&bench{prepare: func(l *loop, m *memory) {
		s.loop, l.learning.sb = l, s
		l.learning.annotate = func(_ context.Context, namespace, name string, uid types.UID, annotation string, change func(string) (string, error)) error {
			var fails bool
			s.do(func() { fails = s.failures > 0; s.failures-- })
			p := m.Pod(namespace, name)
			if fails || p == nil || p.UID != uid {
				return fmt.Errorf("no pod %s", name)
			}
			value, err := change(p.Annotations[annotation])
			if err != nil {
				return err
			}
			m.annotate(namespace, name, annotation, value)
			return nil
		}
	}}).run(t, func(b *bench) { test(b, s) }, objects...)
}

// teach has the learner hear that mac1 has an address.
func (s *school) teach(b *bench, l sbdb.Lesson) {
	s.do(func() { s.lessons = append(s.lessons, l) })
	b.pending.addHeard(podnet.LearnerPortName("net"), l.MAC)
	synctest.Wait()
}

func (b *bench) wantPort(when, addresses, security string) {
	b.t.Helper()
	synctest.Wait()
	b.db.do(func() {
		for _, p := range b.db.rows.Ports {
			if p.Name == port1 && (p.Addresses[0] != addresses || p.PortSecurity[0] != security) {
				b.t.Errorf("%s: the port has addresses %q, port security %q; want %q, %q", when, p.Addresses, p.PortSecurity, addresses, security)
			}
		}
	})
}

func TestLearn(t *testing.T) {
	startSchool(t, func(b *bench, s *school) {
		b.wantPort("at first", mac1+" 192.0.2.1", mac1)
		if !s.learners[podnet.LearnerPortName("net")] {
			t.Errorf("learners are %v", s.learners)
		}
		s.teach(b, lesson(1, "192.0.2.254"))
		b.wantProblem("after a claim of the gateway's", ReasonAddressRefused)
		b.wantPort("after a claim of the gateway's", mac1+" 192.0.2.1", mac1)
		for n, ip := range []string{"192.0.2.7", "192.0.2.8", "192.0.2.7"} {
			s.teach(b, lesson(n+2, ip))
			b.wantPort("after "+ip, mac1+" "+ip, mac1+" "+ip)
			b.wantProblem("after "+ip, "")
			if len(s.lessons) != 1 || s.lessons[0].IP.String() != ip {
				t.Errorf("after %s the learner knows %v", ip, s.lessons)
			}
			b.m.set(t, vmYAML("p1", mac1, ip+"/24", podnet.StateOpen)) // the guest starts over
			synctest.Wait()
		}
	}, learnNAD, vmYAML("p1", mac1, "192.0.2.1/24", podnet.StateOpen))
}

// TestLearnAgain: what can't be written is tried again, as the one change that it is,
// and what is refused is accepted once the reason is gone.
func TestLearnAgain(t *testing.T) {
	startSchool(t, func(b *bench, s *school) {
		s.failures = 2
		s.teach(b, lesson(1, "192.0.2.7"))
		b.wantPort("before it could be written", mac1+" 192.0.2.1", mac1)
		time.Sleep(2 * minRetry)
		b.wantPort("later", mac1+" 192.0.2.7", mac1+" 192.0.2.7")
		for n, ip := range []string{"192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14", "192.0.2.15"} {
			b.m.set(t, vmYAML("p1", mac1, "192.0.2.7/24", podnet.StateOpen))
			s.teach(b, lesson(n+2, ip))
			b.wantPort("after "+ip, mac1+" "+ip, mac1+" "+ip)
		}
		b.m.set(t, vmYAML("p1", mac1, "192.0.2.15/24", podnet.StateOpen))
		s.teach(b, lesson(20, "192.0.2.16"))
		b.wantProblem("the seventh change", ReasonAddressRefused)
		time.Sleep(changesAllow + recallAfter)
		b.wantPort("a minute later", mac1+" 192.0.2.16", mac1+" 192.0.2.16")
		b.wantProblem("a minute later", "")
		if len(s.lessons) != 1 {
			t.Errorf("the learner knows %v", s.lessons)
		}
	}, learnNAD, vmYAML("p1", mac1, "192.0.2.1/24", podnet.StateOpen))
}

// TestLearnedOfPodThatIsGone: what was refused is not held against the next pod of the
// name, and nothing is kept.
func TestLearnedOfPodThatIsGone(t *testing.T) {
	startSchool(t, func(b *bench, s *school) {
		s.teach(b, lesson(1, "192.0.2.254"))
		b.wantProblem("after a claim of the gateway's", ReasonAddressRefused)
		b.m.remove(kindPod, "ns/p1")
		time.Sleep(recallAfter)
		b.wantProblem("when it is gone", "")
		s.do(func() { s.lessons = nil })
		time.Sleep(time.Hour)
		if l := s.loop.learning; len(l.recalls) != 0 || len(l.accepted) != 0 {
			t.Errorf("kept: %v, %v", l.recalls, l.accepted)
		}
	}, learnNAD, vmYAML("p1", mac1, "192.0.2.1/24", podnet.StateOpen))
}

// TestErrandsDontWait: an address is learned while the writing of another one hangs.
func TestErrandsDontWait(t *testing.T) {
	startSchool(t, func(b *bench, s *school) {
		hangs := make(chan struct{})
		s.loop.learning.errands.add("something else", func(ctx context.Context) { <-hangs })
		s.teach(b, lesson(1, "192.0.2.7"))
		b.wantPort("meanwhile", mac1+" 192.0.2.7", mac1+" 192.0.2.7")
		var order []int
		for n := range 100 {
			s.loop.learning.errands.add("something else", func(context.Context) { order = append(order, n) })
		}
		synctest.Wait()
		if len(order) != 0 {
			t.Errorf("%v are run before what was to come before", order)
		}
		close(hangs)
		synctest.Wait()
		if len(order) != 100 || !slices.IsSorted(order) {
			t.Errorf("order %v", order)
		}
	}, learnNAD, vmYAML("p1", mac1, "192.0.2.1/24", podnet.StateOpen))
}

func TestFlood(t *testing.T) {
	deaf := func(b *bench) (found bool) {
		synctest.Wait()
		b.db.do(func() {
			for _, a := range b.db.rows.ACLs {
				found = found || strings.Contains(a.Match, fmt.Sprintf("inport == %q", port1))
			}
		})
		return found
	}
	startSchool(t, func(b *bench, s *school) {
		for n := range floodLimit + 1 {
			s.teach(b, lesson(n, fmt.Sprintf("198.51.100.%d", n)))
		}
		b.wantProblem("after a flood", ReasonFlood)
		if !deaf(b) || len(s.lessons) != 0 {
			t.Errorf("after a flood the learner knows %d addresses", len(s.lessons))
		}
		time.Sleep(deafFor)
		if deaf(b) {
			t.Error("the port is never listened to again")
		}
		b.wantProblem("later", "")
	}, learnNAD, vmYAML("p1", mac1, "192.0.2.1/24", podnet.StateOpen))
}

func TestBinding(t *testing.T) {
	startSchool(t, func(b *bench, s *school) {
		bind := func(binding sbdb.Binding) {
			s.do(func() { s.bindings[port1] = binding })
			b.pending.addOwner(portKey("ns/net", "ns", "p1").String())
			synctest.Wait()
		}
		bind(sbdb.Binding{})
		time.Sleep(bindWithin - time.Second)
		b.wantProblem("within time", "")
		time.Sleep(time.Second)
		b.wantProblem("after a while", ReasonNotBound)
		bind(sbdb.Binding{Chassis: "c1", Hostname: "n1"})
		b.wantProblem("when it is bound", "")
		bind(sbdb.Binding{Chassis: "c2", Hostname: "n2"})
		b.wantProblem("on another chassis", "chassis n1, is bound on chassis c2 (n2)")
	}, netNAD, podYAML("p1", mac1, ""))
}

// Rows of a group that is not a port's are not looked for in the southbound
// database.
func TestBindingOfNetwork(t *testing.T) {
	l := &loop{learning: learning{sb: &school{}, unbound: map[key]time.Time{}}}
	if p := l.bindingProblems(time.Now(), networkKey("net"), nbdb.Rows{Ports: []nbdb.Port{{Name: "x"}}}); p != nil {
		t.Errorf("problems %v", p)
	}
}

// Without the southbound database nobody would read what a learner hears.
func TestNoLearnerWithoutSouthbound(t *testing.T) {
	(&bench{prepare: func(l *loop, _ *memory) { l.inputs.deaf = true }}).run(t, func(b *bench) {
		b.wantNetworkAnd("at first")
		b.wantProblem("at first", "--sb")
	}, learnNAD)
}
