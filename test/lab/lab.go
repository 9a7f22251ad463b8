// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// startTimeout bounds a start on a busy machine; it takes about a second.
const startTimeout = 60 * time.Second

// Options say what a lab is like. The zero value is a lab of one node.
type Options struct {
	// OVN is the folder that OVN and OVS are taken from, as OVN25 returns it.
	// "" means the system's.
	OVN string
	// Nodes is the number of nodes, 1 to 100. 0 means 1.
	Nodes int
	// NodeNetns is the path of a network namespace that the only node has, with
	// the devices in it, in place of a new one. "" means a new one.
	NodeNetns string
	// NBServers is how many servers the northbound database has, 1 to 9. More
	// than one are a cluster. 0 means 1.
	NBServers int
	// NBOnly leaves out all but the northbound database: there is no
	// ovn-northd, no southbound database, no node and no physical network.
	NBOnly bool
	// VLAN is the tag, 1 to 4094, by which alone nodes reach the physical
	// network's gateway and DHCP server. 0 means by untagged frames.
	VLAN int
	// Dir is where databases, sockets and logs are, and nothing else: it is
	// removed by Stop, and when the lab was killed emptied by the next Start.
	// Sockets in it can be used from outside the namespaces, unless it is
	// below /run. "" means a private directory.
	Dir string
	// RangeFirst and RangeLast are the DHCP server's first and last address,
	// .100 and .200 of the physical network if they are not set.
	RangeFirst, RangeLast netip.Addr
	// LeaseTime is at least two minutes, dnsmasq's limit. 0 means 12 hours.
	LeaseTime time.Duration
	// DNSMasqArgs are further arguments of dnsmasq.
	DNSMasqArgs []string
	// Log gets a line for each thing that is started. nil means none.
	Log *slog.Logger
}

// withDefaults returns o with everything set, or what is wrong with it.
func (o Options) withDefaults(p Phys) (Options, error) {
	if o.Nodes == 0 && !o.NBOnly {
		o.Nodes = 1
	}
	if o.NBServers == 0 {
		o.NBServers = 1
	}
	if !o.RangeFirst.IsValid() {
		o.RangeFirst = p.Host(100)
	}
	if !o.RangeLast.IsValid() {
		o.RangeLast = p.Host(200)
	}
	if o.LeaseTime == 0 {
		o.LeaseTime = 12 * time.Hour
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.NBOnly && (o.Nodes != 0 || o.VLAN != 0):
		return o, errors.New("a lab of only the northbound database has neither nodes nor a vlan")
	case !o.NBOnly && (o.Nodes < 1 || o.Nodes > 100):
		return o, fmt.Errorf("nodes: %d is not between 1 and 100", o.Nodes)
	case o.NBServers < 1 || o.NBServers > 9:
		return o, fmt.Errorf("northbound servers: %d is not between 1 and 9", o.NBServers)
	case o.NodeNetns != "" && o.Nodes != 1:
		return o, fmt.Errorf("nodes: %d can't have one network namespace", o.Nodes)
	case o.VLAN < 0 || o.VLAN > 4094:
		return o, fmt.Errorf("vlan: %d is not between 1 and 4094", o.VLAN)
	case !p.Subnet.Contains(o.RangeFirst) || !p.Subnet.Contains(o.RangeLast) || o.RangeLast.Less(o.RangeFirst):
		return o, fmt.Errorf("range: %v to %v is not a range in %v", o.RangeFirst, o.RangeLast, p.Subnet)
	case o.LeaseTime < 2*time.Minute:
		return o, fmt.Errorf("lease time: %v is less than two minutes", o.LeaseTime)
	}
	return o, nil
}

// A Lab is a running lab. Its methods may be called at the same time.
type Lab struct {
	// Dir is the absolute path of the lab's directory.
	Dir string
	// NB and SB are the endpoints of OVN's databases, "unix:PATH". NB is a
	// comma list if it is a cluster, SB "" if there is none.
	NB, SB string
	// Nodes are named "node1", "node2", and so on.
	Nodes []*Node
	Phys  Phys
	DHCP  *DHCPServer

	log        *slog.Logger
	release    release
	northbound []*database
	southbound *database  // nil if there is none
	phys       *namespace // nil if there is none
	lock       *os.File   // the directory is ours while it is open
	stop       func() error

	// alive is done, and its cause says why, when a daemon has ended by itself.
	alive context.Context
	fail  context.CancelCauseFunc

	mu      sync.Mutex // of what follows
	daemons []*daemon
	pods    map[string]bool // names under netnsDir
}

// Start starts a lab and returns when all nodes have joined OVN. ctx bounds
// the start only. The process must have been isolated by Main or Isolate.
func Start(ctx context.Context, o Options) (*Lab, error) {
	l, err := start(ctx, o)
	if err != nil && l != nil {
		return nil, errors.Join(err, l.Stop())
	}
	return l, err
}

// New starts a lab for a test, and stops it when the test ends. If the test has
// failed by then, the ends of the daemons' logs are in its output. The test
// fails at once if the lab can't be started.
func New(t testing.TB, o Options) *Lab {
	t.Helper()
	l, err := start(t.Context(), o)
	if l != nil {
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(l.logTails())
			}
			if err := l.Stop(); err != nil {
				t.Errorf("stop lab: %v", err)
			}
		})
	}
	if err != nil {
		t.Fatalf("start lab: %v", err)
	}
	return l
}

// start returns a lab that is to be stopped also if starting it failed, unless
// it is nil.
func start(ctx context.Context, o Options) (*Lab, error) {
	phys := newPhys(o.VLAN)
	o, err := o.withDefaults(phys)
	if err != nil {
		return nil, err
	}
	release, err := newRelease(o.OVN)
	if err != nil {
		return nil, err
	}
	if err := preflight(release); err != nil {
		return nil, err
	}
	if _, err := os.Stat(isolatedMark); err != nil {
		return nil, errors.New("a lab is started by a process that has called lab.Main or lab.Isolate first")
	}
	dir, lock, err := claim(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &Lab{
		Dir:     dir,
		log:     o.Log,
		release: release,
		lock:    lock,
		pods:    map[string]bool{},
	}
	l.newNorthbound(o.NBServers)
	if !o.NBOnly {
		l.Phys = phys
		l.newSouthbound()
	}
	l.stop = sync.OnceValue(l.stopAll)
	l.alive, l.fail = context.WithCancelCause(context.Background())
	if err := l.up(ctx, o); err != nil {
		if failure := context.Cause(l.alive); failure != nil {
			err = failure
		}
		return l, err
	}
	return l, nil
}

// bounded is ctx for something that has to be done soon: it ends with the lab's
// failure, and after startTimeout.
func (l *Lab) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not done within %v", startTimeout))
	ctx, fail := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.alive, func() { fail(context.Cause(l.alive)) })
	return ctx, func() {
		stop()
		fail(nil)
		end()
	}
}

// up starts everything.
func (l *Lab) up(ctx context.Context, o Options) error {
	began := time.Now()
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	if err := os.Mkdir(l.centralDir(), 0o755); err != nil {
		return err
	}
	var err error
	if o.NBOnly {
		err = l.startNorthbound(ctx)
	} else {
		err = l.upSite(ctx, o)
	}
	if err != nil {
		return err
	}
	l.log.Info("lab is up", "dir", l.Dir, "nodes", len(l.Nodes), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// upSite starts a whole site, as much as possible at the same time.
func (l *Lab) upSite(ctx context.Context, o Options) error {
	if err := l.newPhysNetwork(); err != nil {
		return fmt.Errorf("physical network: %w", err)
	}
	if err := l.newDHCPServer(o); err != nil {
		return fmt.Errorf("dhcp server: %w", err)
	}
	for i := range o.Nodes {
		n, err := l.newNode(i+1, o.NodeNetns)
		if err != nil {
			return fmt.Errorf("node%d: %w", i+1, err)
		}
		l.Nodes = append(l.Nodes, n)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.startCentral(gctx) })
	g.Go(func() error { return l.startPhys(gctx) })
	for _, n := range l.Nodes {
		g.Go(func() error { return n.startOVS(gctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var joined []string
	for _, n := range l.Nodes {
		if err := n.StartController(); err != nil {
			return err
		}
		joined = append(joined, "--", "wait-until", "Chassis", n.Chassis)
	}
	if _, err := l.Sbctl(ctx, joined[1:]...); err != nil {
		return err
	}
	_, err := l.Nbctl(ctx, "--wait=hv", "sync")
	return err
}

// Stop ends every process in the lab, those of Command, InPhys and InNetns too,
// and removes its directory. The error tells what could not be ended or
// removed, and which daemon had ended by itself before. Calls after the first
// return the same.
func (l *Lab) Stop() error { return l.stop() }

func (l *Lab) stopAll() error {
	errs := []error{context.Cause(l.alive)}
	// Nothing that the daemons would tidy up outlives the lab.
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.daemons {
		d.signal(syscall.SIGKILL)
	}
	for _, d := range l.daemons {
		errs = append(errs, d.wait())
	}
	errs = append(errs, l.endProcesses())
	for name := range l.pods {
		errs = append(errs, deleteNetns(name))
	}
	for _, n := range l.Nodes {
		errs = append(errs, n.ns.close())
	}
	if l.phys != nil {
		errs = append(errs, l.phys.close())
	}
	// The directory is given up only when it is gone.
	errs = append(errs, empty(l.Dir), os.RemoveAll(l.Dir), l.lock.Close())
	return errors.Join(errs...)
}

// endProcesses kills what is left in the lab's network namespaces, and waits
// for its end.
func (l *Lab) endProcesses() error {
	ids := map[namespaceID]bool{}
	for _, path := range l.namespaces() {
		id, err := identify(path)
		if err != nil {
			return err
		}
		ids[id] = true
	}
	for deadline := time.Now().Add(endTimeout); ; time.Sleep(pollInterval) {
		pids, err := processesIn(ids)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v did not end within %v", pids, endTimeout)
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// namespaces returns the paths of the lab's network namespaces.
func (l *Lab) namespaces() []string {
	var paths []string
	for name := range l.pods {
		paths = append(paths, filepath.Join(netnsDir, name))
	}
	for _, n := range l.Nodes {
		paths = append(paths, n.ns.path())
	}
	if l.phys != nil {
		paths = append(paths, l.phys.path())
	}
	return paths
}

// logTails returns the ends of all log files.
func (l *Lab) logTails() string {
	logs, _ := filepath.Glob(filepath.Join(l.Dir, "*", "*.log")) // the pattern is good
	var b strings.Builder
	for _, path := range logs {
		name, _ := filepath.Rel(l.Dir, path) // it is below
		fmt.Fprintf(&b, "%s ends:\n%s\n", name, tail(path, 20))
	}
	return b.String()
}

// Sbctl runs ovn-sbctl on the lab's southbound database and returns its output.
func (l *Lab) Sbctl(ctx context.Context, args ...string) (string, error) {
	return output(l.release.command(ctx, "ovn-sbctl", append([]string{"--db=" + l.SB, toolTimeout}, args...)...))
}

// toolTimeout keeps a tool from waiting for ever.
const toolTimeout = "--timeout=30"

// Env is what a shell needs so that ovn-nbctl, ovn-sbctl and ovn-appctl are of
// the lab's version and find it: NAME=VALUE, as in os.Environ.
func (l *Lab) Env() []string {
	return append([]string{"OVN_NB_DB=" + l.NB, "OVN_SB_DB=" + l.SB, "OVN_RUNDIR=" + l.centralDir()}, l.release.env()...)
}
