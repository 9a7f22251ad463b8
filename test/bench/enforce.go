// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/mdlayher/packet"
	"github.com/ovn-org/libovsdb/ovsdb"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/bench/times"
)

const (
	// enforcements is how often the address changes, and then again by hand.
	enforcements = 20
	// pace is between packets, and how exact the figures are.
	pace = time.Millisecond
	// silence is how long nothing comes any more of what is refused.
	silence = 500 * time.Millisecond
	// setOfPeers is the end of the id of the set that the policy allows.
	setOfPeers = ":PodSelector:" + namespace + "_LS{ML:{app: peer,},}:v4"
)

// enforcement is an installation with two pods on two nodes. One sends the other packets
// from two addresses, of which a policy allows the one that it has.
type enforcement struct {
	*installation
	cluster   *cluster
	nb        *northbound
	web, peer *end
	arrivals  *arrivals
}

// end is a pod's interface.
type end struct {
	mac  net.HardwareAddr
	addr netip.Addr
	conn *packet.Conn
}

// enforce measures how long the datapath takes to follow an annotation.
func (b *bench) enforce(ctx context.Context) (err error) {
	progress("starting etcd, kube-apiserver, OVN, two nodes and a DHCP server")
	s, err := b.install(ctx, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	client, err := kubernetes.NewForConfig(s.plane.Admin)
	if err != nil {
		return err
	}
	nb, err := dialNorthbound(ctx, s.Lab.NB)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nb.close()) }()
	e := &enforcement{installation: s, cluster: &cluster{plane: s.plane, client: client, api: client.CoreV1().Pods(namespace)}, nb: nb}
	defer func() { err = errors.Join(err, e.close()) }()
	t := table{title: "Policies in the datapath: the Kubernetes API, two nodes, OVN; packets every " + pace.String()}
	if err := e.measure(ctx, &t); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs())
	}
	return t.print()
}

func (e *enforcement) close() error {
	var errs []error
	for _, end := range []*end{e.web, e.peer} {
		if end != nil {
			errs = append(errs, end.conn.Close())
		}
	}
	return errors.Join(errs...)
}

func (e *enforcement) measure(ctx context.Context, t *table) (err error) {
	if err := e.PutNetwork(e.LAN()); err != nil {
		return err
	}
	if e.web, err = e.join(ctx, "web", 0); err != nil {
		return err
	}
	if e.peer, err = e.join(ctx, "peer", 1); err != nil {
		return err
	}
	of := func(app string) map[string]any { return map[string]any{"matchLabels": map[string]any{"app": app}} }
	err = (&system{cluster: e.cluster}).addPolicy(ctx, "web", of("web"), map[string]any{"podSelector": of("peer")})
	if err != nil {
		return err
	}
	return e.sending(ctx, func(ctx context.Context) error {
		progress("%d changes of an address, and as many by hand", enforcements)
		var allowed, refused, allowedByHand, refusedByHand times.Times
		if err := e.changes(ctx, e.annotate, &allowed, &refused); err != nil {
			return err
		}
		if err := e.StopController(0, syscall.SIGTERM); err != nil {
			return err
		}
		if err := e.changes(ctx, e.write, &allowedByHand, &refusedByHand); err != nil {
			return err
		}
		const rows = "the same rows written, no controller"
		t.add(
			latency("annotation changed → first packet from its address allowed", allowed, rows, allowedByHand),
			latency("annotation changed → last packet from the former refused", refused, rows, refusedByHand),
		)
		return nil
	})
}

// join attaches a pod whose label app is its name.
func (e *enforcement) join(ctx context.Context, name string, i int) (*end, error) {
	pod := e.Pod(namespace, name, i, name)
	pod.Labels = map[string]string{"app": name}
	if err := e.PutPod(pod); err != nil {
		return nil, err
	}
	netns := "sandbox-" + name
	if _, err := e.Lab.AddNetns(netns); err != nil {
		return nil, err
	}
	r, err := e.CNI(ctx, i, e.Attach("ADD", pod, e.LAN(), netns))
	if err != nil {
		return nil, err
	}
	if len(r.Interfaces) != 2 || len(r.IPs) != 1 {
		return nil, fmt.Errorf("result without both ends of a pair and one address: %v", r)
	}
	out := &end{}
	if out.mac, err = net.ParseMAC(r.Interfaces[1].Mac); err != nil {
		return nil, err
	}
	out.addr, _ = netip.AddrFromSlice(r.IPs[0].Address.IP.To4())
	err = ns.WithNetNSPath(e.Lab.NetnsPath(netns), func(ns.NetNS) error {
		ifi, err := net.InterfaceByName("net1")
		if err == nil {
			out.conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_IP, nil)
		}
		return err
	})
	return out, err
}

// host is one of the two addresses that the sender has by turns.
func (e *enforcement) host(n int) netip.Addr {
	a := e.Lab.Phys.Subnet.Addr().As4()
	a[3] = byte(50 + n%2)
	return netip.AddrFrom4(a)
}

// sending does something while packets are sent and received.
func (e *enforcement) sending(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	e.arrivals = &arrivals{board: newBoard[time.Time]()}
	var both sync.WaitGroup
	both.Go(func() {
		if err := e.send(ctx); err != nil {
			cancel(err)
		}
	})
	both.Go(func() {
		if err := e.arrivals.receive(ctx, e.web.conn); err != nil {
			cancel(err)
		}
	})
	err := do(ctx)
	cancel(nil)
	both.Wait()
	return err
}

// send sends packets from both addresses by turns.
func (e *enforcement) send(ctx context.Context) error {
	tick := time.NewTicker(pace / 2)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		frame := datagram(e.peer.mac, e.web.mac, e.host(n), e.web.addr, time.Now())
		if _, err := e.peer.conn.WriteTo(frame, &packet.Addr{HardwareAddr: e.web.mac}); err != nil {
			return fmt.Errorf("send a packet: %w", err)
		}
	}
}

// changes has the sender's address change again and again, and notes how long it
// takes until the new one gets through, and the old one no more.
func (e *enforcement) changes(ctx context.Context, change func(ctx context.Context, from, to netip.Addr) error, allowed, refused *times.Times) error {
	for n := range enforcements + 1 {
		from, to := e.host(n+1), e.host(n)
		began := time.Now()
		if err := change(ctx, from, to); err != nil {
			return err
		}
		first, err := e.arrivals.after(ctx, to, began)
		if err != nil {
			return err
		}
		last, err := e.arrivals.last(ctx, from)
		if err != nil {
			return err
		}
		if n == 0 {
			continue // the first change is from another state
		}
		*allowed = append(*allowed, first.Sub(began))
		*refused = append(*refused, max(last.Sub(began), 0))
	}
	return nil
}

// annotate changes the address in the sender's annotation.
func (e *enforcement) annotate(ctx context.Context, _, to netip.Addr) error {
	a := attachment{"peer", e.peer.mac.String(), to.String()}
	return e.cluster.annotate(ctx, a.pod, a.leased())
}

// write makes of the rows what the controller makes of them.
func (e *enforcement) write(ctx context.Context, from, to netip.Addr) error {
	set, _ := e.nb.sets.get(setOfPeers)
	if set.value.UUID == "" {
		return fmt.Errorf("there is no address set %s", setOfPeers)
	}
	port := podnet.PortName(nadKey, namespace, "peer")
	address := e.peer.mac.String() + " " + to.String()
	mutate := func(m ovsdb.Mutator, a netip.Addr) ovsdb.Operation {
		return ovsdb.Operation{Op: ovsdb.OperationMutate, Table: setTable, Where: byUUID(set.value.UUID),
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("addresses", m, a.String())}}
	}
	ops := []ovsdb.Operation{
		{Op: ovsdb.OperationUpdate, Table: portTable, Where: byUUID(e.nb.uuid(port)), Row: ovsdb.Row{"addresses": address, "port_security": address}},
		mutate(ovsdb.MutateOperationDelete, from),
		mutate(ovsdb.MutateOperationInsert, to),
	}
	results, err := e.nb.client.Transact(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	return err
}

// arrivals are when the packet was sent that came last from each address.
type arrivals struct{ board *board[time.Time] }

// receive notes packets until ctx ends.
func (a *arrivals) receive(ctx context.Context, conn *packet.Conn) error {
	frame := make([]byte, 2048)
	for ctx.Err() == nil {
		if err := conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		n, _, err := conn.ReadFrom(frame)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receive a packet: %w", err)
		}
		if from, sent, ok := parseDatagram(frame[:n]); ok {
			a.board.put(from.String(), sent)
		}
	}
	return nil
}

// after is when the first packet from an address was sent that gets through after
// a time.
func (a *arrivals) after(ctx context.Context, from netip.Addr, began time.Time) (time.Time, error) {
	seen, err := a.board.await(ctx, from.String(), func(sent time.Time) bool { return sent.After(began) })
	return seen.value, err
}

// last is when the packet from an address was sent after which none gets through.
func (a *arrivals) last(ctx context.Context, from netip.Addr) (time.Time, error) {
	for {
		seen, _ := a.board.get(from.String())
		quiet, cancel := context.WithTimeout(ctx, silence)
		_, err := a.board.await(quiet, from.String(), func(sent time.Time) bool { return sent.After(seen.value) })
		cancel()
		if err != nil {
			return seen.value, ctx.Err()
		}
	}
}

// The packets are UDP datagrams to the port discard, which have the time in them.
const (
	discard   = 9
	headers   = 14 + 20 + 8
	frameSize = headers + 8
)

// datagram is a frame with a UDP datagram without checksum (RFC 768) that says when
// it was sent.
func datagram(source, target net.HardwareAddr, from, to netip.Addr, sent time.Time) []byte {
	f := make([]byte, frameSize)
	copy(f[0:], target)
	copy(f[6:], source)
	be := binary.BigEndian
	be.PutUint16(f[12:], unix.ETH_P_IP)
	ip := f[14:34]
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	be.PutUint16(ip[2:], frameSize-14)
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], to.AsSlice())
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(be.Uint16(ip[i:]))
	}
	be.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	be.PutUint16(f[34:], discard)
	be.PutUint16(f[36:], discard)
	be.PutUint16(f[38:], frameSize-34)
	be.PutUint64(f[headers:], uint64(sent.UnixNano()))
	return f
}

// parseDatagram reads what datagram makes.
func parseDatagram(f []byte) (from netip.Addr, sent time.Time, ok bool) {
	if len(f) < frameSize || f[14] != 0x45 || f[23] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(f[36:]) != discard {
		return from, sent, false
	}
	return netip.AddrFrom4([4]byte(f[26:30])), time.Unix(0, int64(binary.BigEndian.Uint64(f[headers:]))), true
}
