// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

//go:build lab

package nbdb

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkOneElement is the change of one element of an address set, from the
// comparison to the answer of the server, and the CPU time of this process for
// it, with the update that comes back.
func BenchmarkOneElement(b *testing.B) {
	for _, n := range []int{100, 1000, 3000, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := session(b, startServer(b))
			addresses := NewMembers()
			for i := range n {
				addresses.Add(fmt.Sprintf("10.1.%d.%d", i/256, i%256))
			}
			mustApply(b, s, "set/s", setRows(addresses))
			b.ReportAllocs()
			before, took := cpuTime(b), []time.Duration{}
			for b.Loop() {
				if addresses.Has("10.0.0.1") {
					addresses.Remove("10.0.0.1")
				} else {
					addresses.Add("10.0.0.1")
				}
				began := time.Now()
				if c, err := apply(b, s, "set/s", setRows(addresses)); err != nil || c.Empty() {
					b.Fatalf("error %v, change:\n%s", err, c)
				}
				took = append(took, time.Since(began))
			}
			report(b, before, took)
		})
	}
}

// BenchmarkOnePort is the change of one port's address beside n others.
func BenchmarkOnePort(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := session(b, startServer(b))
			mustApply(b, s, "network/net", networkRows())
			var ports []Port
			for i := range n {
				p := wantPort()
				p.Name = fmt.Sprintf("p%d", i)
				ports = append(ports, p)
			}
			mustApply(b, s, "port/others", Rows{Ports: ports})
			b.ReportAllocs()
			before, took := cpuTime(b), []time.Duration{}
			for i := 0; b.Loop(); i++ {
				p := wantPort()
				p.Addresses = []string{fmt.Sprintf("0a:00:00:00:00:01 192.0.2.%d", i%2)}
				began := time.Now()
				if c, err := apply(b, s, testKey, Rows{Ports: []Port{p}}); err != nil || c.Empty() {
					b.Fatalf("error %v, change:\n%s", err, c)
				}
				took = append(took, time.Since(began))
			}
			report(b, before, took)
		})
	}
}

// BenchmarkInStep is a session's first look at 5,000 ports and 200 policies of
// 250 ports each, nothing of which is to be written.
func BenchmarkInStep(b *testing.B) {
	srv := startServer(b)
	s := session(b, srv)
	mustApply(b, s, "network/net", networkRows())
	groups := map[string]Rows{}
	for i := range 5000 {
		p := wantPort()
		p.Name = fmt.Sprintf("p%d", i)
		groups["port/"+p.Name] = Rows{Ports: []Port{p}}
	}
	for i := range 200 {
		rows, ports := policyRows(NewMembers()), NewMembers()
		for j := range 250 {
			ports.Add(fmt.Sprintf("p%d", (i*25+j)%5000))
		}
		id := map[string]string{IDKey: fmt.Sprint(i)}
		rows.PortGroups[0].Name, rows.PortGroups[0].Ports, rows.ACLs[0].On, rows.ACLs[0].ExternalIDs = fmt.Sprint("g", i), ports, fmt.Sprint("g", i), id
		groups[fmt.Sprint("policy/", i)] = rows
	}
	if err := s.Apply(b.Context(), changes(b, s, groups)...); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		s := session(b, srv)
		b.StartTimer()
		wantInStep(b, s, groups)
	}
}

func report(b *testing.B, before time.Duration, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-us")
}

// cpuTime is the process's.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
