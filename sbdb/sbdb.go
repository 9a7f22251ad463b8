// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package sbdb is a read-only view of OVN's southbound database: where the ports
// of our networks are bound (tables Port_Binding and Chassis), and what the
// learners were taught (table MAC_Binding). The server sends only those rows,
// so other networks cost nothing. The one thing that is ever written is the
// removal of rows that a learner has no more use for.
package sbdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/ovn-org/libovsdb/model"
	"golang.org/x/sync/errgroup"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/ovsdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/sb"
)

const databaseName = "OVN_Southbound"

// Config says where the southbound database is and which ports are looked at.
type Config struct {
	// Endpoint is "unix:/path", "tcp:host:port", "ssl:host:port", or a comma
	// list of such, of which the leader of the cluster is used.
	Endpoint string
	// PrivateKey, Certificate and CACert are PEM files for ssl endpoints. They
	// are read anew for each session.
	PrivateKey, Certificate, CACert string
	// PortKey and PortValue are what all ports of interest have in their
	// external_ids, which OVN copies from the logical switch port.
	PortKey, PortValue string
	Log                *slog.Logger
}

// View is what OVN has bound and learned. It is safe for concurrent use.
type View struct {
	bindings ovsdb.Config
	learned  ovsdb.Config
	portKey  string

	mu       sync.Mutex
	session  *ovsdb.Session // of bindings, nil while there is none
	lessons  *ovsdb.Session // of learned, nil while there is none
	learners []string       // sorted
	changed  chan struct{}  // closed and replaced when learners change
}

// New checks cfg, its files included. Nothing is dialled before Run.
func New(cfg Config) (*View, error) {
	if cfg.PortKey == "" || cfg.PortValue == "" || cfg.Log == nil {
		return nil, errors.New("southbound database: PortKey, PortValue and Log must be set")
	}
	common := ovsdb.Config{
		Endpoint: cfg.Endpoint,
		TLS:      ovsdb.TLS{PrivateKey: cfg.PrivateKey, Certificate: cfg.Certificate, CACert: cfg.CACert},
		Log:      cfg.Log,
	}
	if err := common.Check(); err != nil {
		return nil, fmt.Errorf("southbound database: %w", err)
	}
	v := &View{bindings: common, learned: common, portKey: cfg.PortKey, changed: make(chan struct{})}
	var err error
	if v.bindings.Model, err = bindingModel(); err != nil {
		return nil, fmt.Errorf("southbound database: %w", err)
	}
	if v.learned.Model, err = lessonModel(); err != nil {
		return nil, fmt.Errorf("southbound database: %w", err)
	}
	v.bindings.Tables = bindingTables(cfg.PortKey, cfg.PortValue)
	return v, nil
}

// use makes a session the one of a kind, until end is called.
func (v *View) use(kind **ovsdb.Session, s *ovsdb.Session) (end func()) {
	set := func(s *ovsdb.Session) {
		v.mu.Lock()
		defer v.mu.Unlock()
		*kind = s
	}
	set(s)
	return func() { set(nil) }
}

// Run keeps the view in step until ctx ends, and returns its error.
//
//   - synced is called at the begin of each session of bindings: what changed
//     while there was none is not told of, so whoever cares looks at all ports.
//   - bound is called with the external_ids of each port whose binding comes,
//     changes or goes after that.
//   - taught is called with a learner's router port and the MAC address that it
//     has heard, for all rows that are there and for each that comes, changes or
//     goes.
//
// They return quickly, and the state is read by the other methods. They may be
// called at the same time.
func (v *View) Run(ctx context.Context, synced func(), bound func(externalIDs map[string]string), taught func(routerPort, mac string)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return ovsdb.Run(ctx, v.bindings, func(ctx context.Context, s *ovsdb.Session) error {
			return v.serveBindings(ctx, s, synced, bound)
		})
	})
	g.Go(func() error { return v.learn(ctx, taught) })
	return g.Wait()
}

// errRelearn ends a session of learned rows because the learners have changed.
var errRelearn = errors.New("learners have changed")

// learn has a session for the learners that there are, and another one when
// they change: what a monitor asks for is fixed.
func (v *View) learn(ctx context.Context, taught func(routerPort, mac string)) error {
	for ctx.Err() == nil {
		learners, changed := v.current()
		g, during := errgroup.WithContext(ctx)
		g.Go(func() error {
			select {
			case <-changed:
				return errRelearn
			case <-during.Done():
				return during.Err()
			}
		})
		if len(learners) > 0 {
			cfg := v.learned
			cfg.Tables = lessonTables(learners)
			g.Go(func() error {
				return ovsdb.Run(during, cfg, func(ctx context.Context, s *ovsdb.Session) error {
					return v.serveLessons(ctx, s, taught)
				})
			})
		}
		if err := g.Wait(); !errors.Is(err, errRelearn) && ctx.Err() == nil {
			return err
		}
	}
	return ctx.Err()
}

func (v *View) current() ([]string, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.learners, v.changed
}

// SetLearners says which router ports are learners. Their rows of MAC_Binding
// are in the view from soon after, those of others no more.
func (v *View) SetLearners(routerPorts map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	learners := slices.Sorted(maps.Keys(routerPorts))
	if slices.Equal(learners, v.learners) {
		return
	}
	v.learners = learners
	close(v.changed)
	v.changed = make(chan struct{})
}

func bindingModel() (model.ClientDBModel, error) {
	db, err := model.NewClientDBModel(databaseName, map[string]model.Model{
		sb.PortBindingTable: &sb.PortBinding{},
		sb.ChassisTable:     &sb.Chassis{},
	})
	if err != nil {
		return db, err
	}
	db.SetIndexes(map[string][]model.ClientIndex{
		sb.PortBindingTable: {{Columns: []model.ColumnKey{{Column: "logical_port"}}}},
	})
	return db, nil
}

func lessonModel() (model.ClientDBModel, error) {
	db, err := model.NewClientDBModel(databaseName, map[string]model.Model{
		sb.MACBindingTable: &sb.MACBinding{},
	})
	if err != nil {
		return db, err
	}
	db.SetIndexes(map[string][]model.ClientIndex{
		sb.MACBindingTable: {{Columns: []model.ColumnKey{{Column: "mac"}}}},
	})
	return db, nil
}
