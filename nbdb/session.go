// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

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
		nb.LogicalSwitchTable:       &nb.LogicalSwitch{},
		nb.LogicalSwitchPortTable:   &nb.LogicalSwitchPort{},
		nb.PortGroupTable:           &portGroupModel{},
		nb.AddressSetTable:          &addressSetModel{},
		nb.ACLTable:                 &nb.ACL{},
		nb.QoSTable:                 &nb.QoS{},
		nb.LogicalRouterTable:       &nb.LogicalRouter{},
		nb.LogicalRouterPortTable:   &nb.LogicalRouterPort{},
		nb.LogicalRouterPolicyTable: &nb.LogicalRouterPolicy{},
	})
	if err != nil {
		return nil, fmt.Errorf("northbound database: %w", err)
	}
	out.Model = dbModel
	return &Client{out, cfg.Fence}, nil
}

// monitored are the columns in use. Without a switch's ports, a port that comes
// or goes is a change of one small row.
func monitored() []client.MonitorOption {
	s, p, g, a := &nb.LogicalSwitch{}, &nb.LogicalSwitchPort{}, &portGroupModel{}, &addressSetModel{}
	acl, qos := &nb.ACL{}, &nb.QoS{}
	r, rp, policy := &nb.LogicalRouter{}, &nb.LogicalRouterPort{}, &nb.LogicalRouterPolicy{}
	return []client.MonitorOption{
		client.WithTable(s, &s.Name, &s.ExternalIDs),
		client.WithTable(p, &p.Name, &p.Type, &p.Addresses, &p.PortSecurity, &p.Options,
			&p.ExternalIDs, &p.TagRequest, &p.Dhcpv4Options, &p.Enabled, &p.Up),
		client.WithTable(g, &g.Name, &g.ExternalIDs, &g.Ports),
		client.WithTable(a, &a.Name, &a.ExternalIDs, &a.Addresses),
		client.WithTable(acl, &acl.Name, &acl.Direction, &acl.Priority, &acl.Match, &acl.Action, &acl.Options, &acl.ExternalIDs),
		client.WithTable(qos, &qos.Direction, &qos.Priority, &qos.Match, &qos.Action, &qos.Bandwidth, &qos.ExternalIDs),
		client.WithTable(r, &r.Name, &r.Options, &r.ExternalIDs),
		client.WithTable(rp, &rp.Name, &rp.MAC, &rp.Networks, &rp.Options, &rp.ExternalIDs),
		client.WithTable(policy, &policy.Priority, &policy.Match, &policy.Action, &policy.ExternalIDs),
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
		return serve(ctx, newSession(s, held))
	})
	return context.Cause(ctx)
}

// Session is one connection to the database, with a copy of the rows. After
// Apply has returned, Rows gives what Apply wrote. It is safe for concurrent
// use, but for the Members in the rows that it returns.
type Session struct {
	session *ovsdb.Session
	held    *hold // nil without fence

	mirrors sync.Mutex // see mirror
	missing missing
	index   *index
}

func newSession(s *ovsdb.Session, held *hold) *Session {
	return &Session{session: s, held: held, missing: missing{keys: map[string]map[string]bool{}}, index: newIndex(s.Cache())}
}

// Watch calls changed with the key of the group of each row that comes, changes
// or goes from now on; also with the former key of a row that changes groups,
// and with that of a port group that has had to do without a port when that
// comes. changed must return quickly.
func (s *Session) Watch(changed func(key string)) {
	tell := func(rows ...model.Model) {
		for _, row := range rows {
			if key := owner(row); isGroup(key) {
				changed(key)
			}
		}
	}
	s.session.Cache().AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc: func(_ string, row model.Model) {
			tell(row)
			if port, ok := row.(*nb.LogicalSwitchPort); ok {
				s.missing.come(port.Name, changed)
			}
		},
		UpdateFunc: func(_ string, before, after model.Model) { tell(before, after) },
		DeleteFunc: func(_ string, row model.Model) { tell(row) },
	})
}

func owner(row model.Model) string {
	if r, ok := row.(interface{ GetExternalIDs() map[string]string }); ok {
		return r.GetExternalIDs()[OwnerKey]
	}
	return ""
}

// isGroup reports whether an owner is the key of a group.
func isGroup(owner string) bool { return owner != "" && owner != fenceOwner }

// Keys are the keys of all groups that have rows.
func (s *Session) Keys() []string {
	return slices.DeleteFunc(s.index.owners(), func(owner string) bool { return !isGroup(owner) })
}

// ErrRefused is a transaction that the server got and did not make.
var ErrRefused = errors.New("refused by OVN's northbound database")

// Apply makes the changes in one transaction, all of them or none. The error is
// an ErrRefused when the server did not make it, and ErrSuperseded when that is
// because somebody else leads; after any but an ErrRefused the session is of no
// more use.
//
// A port that a port group is to have and that does not exist is left out; its
// group is told to Watch when it comes. Changes that are nothing but that make
// no transaction.
func (s *Session) Apply(ctx context.Context, changes ...Change) error {
	ops, missing := operations(changes, s.portUUID)
	if len(missing) > 0 {
		// A port that has come before this will not be told of.
		s.missing.add(missing)
		ops, _ = operations(changes, s.portUUID)
	}
	if len(ops) == 0 {
		return nil
	}
	ops = append(ops, s.recompute(changes)...)
	if s.held != nil {
		ops = append([]operation{s.held.wait()}, ops...)
	}
	if err := s.transact(ctx, ops); err != nil {
		return err
	}
	s.index.wrote(changes)
	return nil
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
