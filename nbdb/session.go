// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/client"
	"github.com/ovn-org/libovsdb/model"
	libovsdb "github.com/ovn-org/libovsdb/ovsdb"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/internal/ovsdb"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/models/nb"
)

// Config says where the northbound database is, and who writes to it.
type Config struct {
	// Endpoint is "unix:/path", "tcp:host:port", "ssl:host:port", or a comma
	// list of such, of which the leader of the cluster is used.
	Endpoint string
	// PrivateKey, Certificate and CACert are PEM files for ssl endpoints. They
	// are read anew for each session.
	PrivateKey, Certificate, CACert string
	// Fence is nil where nobody else can come to write.
	Fence *Fence
	Log   *slog.Logger
}

// Client has sessions with the northbound database.
type Client struct {
	cfg   ovsdb.Config
	fence *Fence
}

// New checks cfg, its files included. Nothing is dialled before Run.
func New(cfg Config) (*Client, error) {
	if f := cfg.Fence; f != nil && (f.Leader == "" || f.Elected == nil) {
		return nil, errors.New("northbound database: a fence needs Leader and Elected")
	}
	out := ovsdb.Config{
		Endpoint: cfg.Endpoint,
		TLS:      ovsdb.TLS{PrivateKey: cfg.PrivateKey, Certificate: cfg.Certificate, CACert: cfg.CACert},
		Tables:   monitored(),
		Log:      cfg.Log,
	}
	if err := out.Check(); err != nil {
		return nil, fmt.Errorf("northbound database: %w", err)
	}
	dbModel, err := model.NewClientDBModel("OVN_Northbound", map[string]model.Model{
		nb.LogicalSwitchTable:     &nb.LogicalSwitch{},
		nb.LogicalSwitchPortTable: &nb.LogicalSwitchPort{},
	})
	if err != nil {
		return nil, fmt.Errorf("northbound database: %w", err)
	}
	byOwner := model.ClientIndex{Columns: []model.ColumnKey{{Column: "external_ids", Key: OwnerKey}}}
	byName := model.ClientIndex{Columns: []model.ColumnKey{{Column: "name"}}}
	dbModel.SetIndexes(map[string][]model.ClientIndex{
		nb.LogicalSwitchTable:     {byOwner, byName},
		nb.LogicalSwitchPortTable: {byOwner, byName},
	})
	out.Model = dbModel
	return &Client{out, cfg.Fence}, nil
}

// monitored are the columns in use. Without a switch's ports, a port that comes
// or goes is a change of one small row.
func monitored() []client.MonitorOption {
	s, p := &nb.LogicalSwitch{}, &nb.LogicalSwitchPort{}
	return []client.MonitorOption{
		client.WithTable(s, &s.Name, &s.ExternalIDs),
		client.WithTable(p, &p.Name, &p.Type, &p.Addresses, &p.PortSecurity, &p.Options,
			&p.ExternalIDs, &p.TagRequest, &p.Dhcpv4Options, &p.Up),
	}
}

// Run calls serve with a session, again with a new one when that is lost, until
// ctx ends or somebody else leads; the error is the reason, ErrSuperseded in
// that case. The context that serve gets ends with its session. serve returns
// when that context ends, or earlier with an error to have the session replaced.
func (c *Client) Run(ctx context.Context, serve func(ctx context.Context, s *Session) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The fence is taken once, and then kept over sessions: a leader that has
	// lost it does not take it back.
	var held *hold
	ovsdb.Run(ctx, c.cfg, func(ctx context.Context, s *ovsdb.Session) (err error) {
		defer func() {
			if errors.Is(err, ErrSuperseded) {
				stop(err)
			}
		}()
		if c.fence != nil && held == nil {
			if held, err = (&Session{session: s}).take(ctx, *c.fence); err != nil {
				return err
			}
		}
		return serve(ctx, &Session{s, held})
	})
	return context.Cause(ctx)
}

// Session is one connection to the database, with a copy of the rows. After
// Apply has returned, Rows gives what Apply wrote. It is safe for concurrent
// use.
type Session struct {
	session *ovsdb.Session
	held    *hold // nil without fence
}

// Watch calls changed with the key of the group of each row that comes, changes
// or goes from now on; also with the former key of a row that changes groups.
// changed must return quickly.
func (s *Session) Watch(changed func(key string)) {
	tell := func(rows ...model.Model) {
		for _, row := range rows {
			if key := owner(row); key != "" {
				changed(key)
			}
		}
	}
	s.session.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    func(_ string, row model.Model) { tell(row) },
		UpdateFunc: func(_ string, before, after model.Model) { tell(before, after) },
		DeleteFunc: func(_ string, row model.Model) { tell(row) },
	})
}

func owner(row model.Model) string {
	switch row := row.(type) {
	case *nb.LogicalSwitch:
		return row.ExternalIDs[OwnerKey]
	case *nb.LogicalSwitchPort:
		return row.ExternalIDs[OwnerKey]
	}
	return ""
}

// Keys are the keys of all groups that have rows.
func (s *Session) Keys() ([]string, error) {
	var keys []string
	for _, table := range []string{nb.LogicalSwitchTable, nb.LogicalSwitchPortTable} {
		index, err := s.session.Cache().Table(table).Index("external_ids|" + OwnerKey)
		if err != nil {
			return nil, fmt.Errorf("rows of %s by owner: %w", table, err)
		}
		for key := range index {
			if key != "" {
				keys = append(keys, key.(string))
			}
		}
	}
	return keys, nil
}

// Rows are the rows of a group, and, as Diff needs them, the rows that have the
// names of wanted ones and of their switches.
func (s *Session) Rows(key string, want Rows) (Rows, error) {
	owned := libovsdb.NewCondition("external_ids", libovsdb.ConditionIncludes, ovsMap(map[string]string{OwnerKey: key}))
	switches, ports := []libovsdb.Condition{owned}, []libovsdb.Condition{owned}
	for _, w := range want.Switches {
		switches = append(switches, byName(w.Name))
	}
	for _, w := range want.Ports {
		ports = append(ports, byName(w.Name))
		switches = append(switches, byName(w.Switch))
	}
	var rows Rows
	if err := s.find(nb.LogicalSwitchTable, switches, func(m model.Model) {
		rows.Switches = append(rows.Switches, switchFromModel(m.(*nb.LogicalSwitch)))
	}); err != nil {
		return Rows{}, err
	}
	if err := s.find(nb.LogicalSwitchPortTable, ports, func(m model.Model) {
		rows.Ports = append(rows.Ports, portFromModel(m.(*nb.LogicalSwitchPort)))
	}); err != nil {
		return Rows{}, err
	}
	return rows, nil
}

// find calls add once for each row that meets one of the conditions, each of
// which an index answers.
func (s *Session) find(table string, anyOf []libovsdb.Condition, add func(model.Model)) error {
	seen := map[string]bool{}
	for _, condition := range anyOf {
		found, err := s.session.Cache().Table(table).RowsByCondition([]libovsdb.Condition{condition})
		if err != nil {
			return fmt.Errorf("find rows of %s: %w", table, err)
		}
		for uuid, m := range found {
			if !seen[uuid] {
				seen[uuid] = true
				add(m)
			}
		}
	}
	return nil
}

func byName(name string) libovsdb.Condition {
	return libovsdb.NewCondition("name", libovsdb.ConditionEqual, name)
}

// ErrRefused is a transaction that the server got and did not make.
var ErrRefused = errors.New("refused by OVN's northbound database")

// Apply makes the changes in one transaction, all of them or none. The error is
// an ErrRefused when the server did not make it, and ErrSuperseded when that is
// because somebody else leads; after any but an ErrRefused the session is of no
// more use.
func (s *Session) Apply(ctx context.Context, changes ...Change) error {
	var ops []operation
	if s.held != nil {
		ops = append(ops, s.held.wait())
	}
	return s.transact(ctx, append(ops, operations(changes)...))
}

func (s *Session) transact(ctx context.Context, ops []operation) error {
	plain := make([]libovsdb.Operation, len(ops))
	for i, op := range ops {
		plain[i] = op.Operation
	}
	results, err := s.session.Transact(ctx, plain...)
	if err != nil {
		return fmt.Errorf("write to OVN's northbound database: %w", err)
	}
	for i, r := range results {
		if r.Error == "" {
			continue
		}
		// A result beyond the operations is of the constraints that are checked
		// at the end (RFC 7047, 4.1.3).
		what := "transaction"
		if i < len(ops) {
			what = ops[i].what
			if ops[i].lost != nil && r.Error == "timed out" { // RFC 7047, 5.2.6
				return ops[i].lost
			}
		}
		return fmt.Errorf("%w: %s: %s: %s", ErrRefused, what, r.Error, r.Details)
	}
	return nil
}
