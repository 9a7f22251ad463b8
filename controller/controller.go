// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps OVN's northbound database in step with pods and
// network attachment definitions: a switch and a localnet port for each DHCP
// network, and a port for each attachment of a pod, with the addresses that the
// pod's annotation says.
//
// Rows are worked on in groups, each under a key. An event only says which
// groups to look at again: everything is then read anew, from the source and
// from the database. So what is missed heals, and one changed pod costs the
// work of one pod.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/sbdb"
)

// DefaultPluginType is the CNI plugin of OVN-Kubernetes.
const DefaultPluginType = "ovn-k8s-cni-overlay"

// Kinds of the objects that are read.
const (
	kindPod  = "Pod"
	kindNAD  = "NetworkAttachmentDefinition"
	kindNode = "Node"

	kindNamespace = "Namespace"
	kindPolicy    = "MultiNetworkPolicy"
	kindQoS       = "NetworkQoS"
)

// Source is where the inputs come from: Kubernetes, a directory of objects, or
// what the embedding program has. All methods are called concurrently with Run.
type Source interface {
	// Run reads the source until ctx ends: it calls changed for each object
	// that exists, then synced once, then changed for each object that comes,
	// changes or goes. kind is "Pod", "NetworkAttachmentDefinition",
	// "MultiNetworkPolicy", "NetworkQoS", or "Namespace" or "Node", which have no
	// namespace. Before a call of changed the other methods give
	// the object's new state.
	Run(ctx context.Context, changed func(kind, namespace, name string), synced func()) error
	// Pod is a pod, nil when there is none. It is not changed by the caller.
	Pod(namespace, name string) *corev1.Pod
	// Node is a node, nil when there is none. It is not changed by the caller.
	Node(name string) *corev1.Node
	// Object is an object of any kind, nil when there is none. It is not
	// changed by the caller.
	Object(kind, namespace, name string) *unstructured.Unstructured
	// Report sets what is wrong with an object at this moment, messages by
	// reason; none clears it. It is called when that changes, once for each
	// object after a start, and again after an error. It returns quickly.
	Report(ctx context.Context, kind, namespace, name string, problems map[string]string) error
}

// Config is what a Controller needs.
type Config struct {
	Source Source
	// NB is the endpoint of OVN's northbound database: "unix:/path",
	// "tcp:host:port", "ssl:host:port", or a comma list of such, of which the
	// leader of the cluster is used.
	NB string
	// SB is the endpoint of OVN's southbound database, in the same form. Empty
	// means that it is not watched: no address is learned from it, and what is
	// bound is what the northbound database says.
	SB string
	// Learn is from what the addresses of virtual machines are learned where the
	// NAD doesn't say: "off", "auto" or "all"; "auto" if empty.
	Learn string
	// AnnotatePod writes what is learned. It must be set if SB is.
	AnnotatePod AnnotatePod
	// PrivateKey, Certificate and CACert are PEM files, all three needed for an
	// ssl endpoint. They are read anew for each session with a database, so
	// renewed ones are used from the next session on.
	PrivateKey, Certificate, CACert string
	// PluginType is the CNI plugin whose NADs are served, DefaultPluginType if
	// empty. With any other, the external_ids by which OVN-Kubernetes knows its
	// networks have a prefix of our own, or it would remove the rows.
	PluginType string
	// Zone is the zone whose northbound database NB is, where each zone of
	// nodes has one: only the pods on its nodes get ports. Without zones it is
	// empty.
	Zone string
	// Leader names this process where several take turns, and neither another
	// nor a former run of it. Run is called when it has been elected, and
	// writes nothing once another one's Run has begun: each transaction depends
	// on a row that names the leader. Empty where there is one process only.
	Leader string
	// Elected asks those who hold the election whether Leader leads at this
	// moment; what the process knew before is not enough, since it may have
	// been asleep. It is called before the first transaction. It goes with
	// Leader.
	Elected func(ctx context.Context) (bool, error)
	// Metrics is where the controller's metrics are registered; nil for nowhere.
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// ErrSuperseded is the error of Run when another process leads. The election
// may not have told yet.
var ErrSuperseded = nbdb.ErrSuperseded

// Controller makes rows of a Source's objects.
type Controller struct {
	source  Source
	nb      *nbdb.Client
	sb      *sbdb.View // nil if it is not watched
	pending *pending
	loop    *loop
}

// New checks cfg, its files included. The source is not read and nothing is
// dialled before Run.
func New(cfg Config) (*Controller, error) {
	if cfg.Source == nil || cfg.Log == nil {
		return nil, errors.New("controller: Source and Log must be set")
	}
	if (cfg.Leader == "") != (cfg.Elected == nil) {
		return nil, errors.New("controller: Leader and Elected go together")
	}
	if cfg.Learn != "" && !podnet.ValidLearn(cfg.Learn) {
		return nil, fmt.Errorf("controller: Learn: %q is not off, auto or all", cfg.Learn)
	}
	if cfg.SB == "" && cfg.Learn == podnet.LearnAll {
		return nil, errors.New("controller: to learn from all needs the southbound database, SB")
	}
	if cfg.SB != "" && cfg.AnnotatePod == nil {
		return nil, errors.New("controller: AnnotatePod must be set where SB is")
	}
	cfg.PluginType = cmp.Or(cfg.PluginType, DefaultPluginType)
	nb, err := nbdb.New(nbdb.Config{
		Endpoint:    cfg.NB,
		PrivateKey:  cfg.PrivateKey,
		Certificate: cfg.Certificate,
		CACert:      cfg.CACert,
		Fence:       cfg.fence(),
		Log:         cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	p := newPending()
	c := &Controller{source: cfg.Source, nb: nb, pending: p, loop: newLoop(cfg, p, m)}
	if cfg.SB == "" {
		c.loop.inputs.deaf = true
		return c, nil
	}
	c.sb, err = sbdb.New(sbdb.Config{
		Endpoint:    cfg.SB,
		PrivateKey:  cfg.PrivateKey,
		Certificate: cfg.Certificate,
		CACert:      cfg.CACert,
		PortKey:     idPlugin,
		PortValue:   cfg.PluginType,
		Log:         cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	c.loop.learning.sb = c.sb
	return c, nil
}

// fence is one for each kind of controller that can share a database.
func (cfg Config) fence() *nbdb.Fence {
	if cfg.Leader == "" {
		return nil
	}
	return &nbdb.Fence{Name: cfg.PluginType + ":" + cfg.Zone, Leader: cfg.Leader, Elected: cfg.Elected}
}

// Run keeps the rows in step until ctx ends, the source fails, or another
// process leads, and returns the reason; ErrSuperseded in the last case. It is
// called once.
func (c *Controller) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := c.source.Run(ctx, c.pending.addObject, c.pending.setSynced)
		return cmp.Or(err, ctx.Err(), errors.New("controller: the source has ended"))
	})
	g.Go(func() error {
		return c.nb.Run(ctx, func(ctx context.Context, s *nbdb.Session) error {
			s.Watch(c.pending.addOwner)
			return c.loop.run(ctx, s)
		})
	})
	g.Go(func() error { return c.loop.learning.errands.run(ctx) })
	if c.sb != nil {
		g.Go(func() error {
			return c.sb.Run(ctx, c.pending.addAll, func(ids map[string]string) { c.pending.addOwner(ids[nbdb.OwnerKey]) }, c.pending.addHeard)
		})
	}
	return g.Wait()
}
