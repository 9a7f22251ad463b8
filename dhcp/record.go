// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// state is what a record's lease is good for.
type state string

const (
	// held: it may be the client's, but is not in use: an offer that was requested,
	// or a lease that waits for the interface it moves to.
	held state = "held"
	// bound: in use, and prolonged in time.
	bound state = "bound"
	// lost: the client looks for a new one. Lease is the one to ask for, if any.
	lost state = "lost"
	// releasing: to be given back.
	releasing state = "releasing"
)

// record is all that outlives the process: one client and its lease.
type record struct {
	State  state    `json:"state"`
	Client identity `json:"client"`
	Lease  *Lease   `json:"lease,omitempty"`
	// Told is the lease that the caller uses, as far as is known: it was returned to
	// it, or a callback about it has succeeded.
	Told *Lease `json:"told,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. What can't be a record is an error.
func (r *record) UnmarshalJSON(b []byte) error {
	type plain record
	var p plain
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	switch {
	case p.State != held && p.State != bound && p.State != lost && p.State != releasing:
		return fmt.Errorf("state %q", p.State)
	case p.Client.Place == "" || p.Client.IfName == "" || len(p.Client.HardwareAddr) != 6:
		return errors.New("client without interface or hardware address")
	case p.Lease == nil && p.State != lost:
		return errors.New("no lease")
	}
	*r = record(p)
	return nil
}

// usable returns the lease that may be used; nil if there is none.
func (r record) usable() *Lease {
	if r.State == bound {
		return r.Lease
	}
	return nil
}

// told reports whether the caller uses what it may use. Leases are told apart by the
// time of the request that they were granted for.
func (r record) told() bool {
	if r.State == held || r.State == releasing {
		return true // the caller has done this itself
	}
	now := r.usable()
	if now == nil || r.Told == nil {
		return now == r.Told
	}
	return now.Acquired.Equal(r.Told.Acquired)
}

// unended is the record's lease if it may still be the client's at the server.
func (r record) unended(now time.Time) *Lease {
	if r.Lease == nil || r.Lease.expired(now) {
		return nil
	}
	return r.Lease
}

// identity is a Client as it is on disk. Place names the network namespace itself,
// where Netns is only a path.
type identity struct {
	Netns        string             `json:"netns,omitempty"`
	Place        string             `json:"place"`
	IfName       string             `json:"ifname"`
	HardwareAddr hexBytes           `json:"hardware_addr"`
	ClientID     hexBytes           `json:"client_id"`
	HostName     string             `json:"host_name,omitempty"`
	Options      map[uint8]hexBytes `json:"options,omitempty"`
	Request      hexBytes           `json:"request"`
	Probe        bool               `json:"probe,omitempty"`
	// Data is the caller's.
	Data json.RawMessage `json:"data,omitempty"`
}

func newIdentity(c Client, place string) identity {
	cfg := c.Config.withDefaults()
	id := identity{
		Netns: c.Netns, Place: place, IfName: c.IfName,
		HardwareAddr: hexBytes(cfg.HardwareAddr), ClientID: cfg.ClientID, HostName: cfg.HostName,
		Request: cfg.Request, Probe: cfg.Probe, Data: c.Data,
	}
	for code, value := range cfg.Options {
		if id.Options == nil {
			id.Options = map[uint8]hexBytes{}
		}
		id.Options[code] = value
	}
	return id
}

func (id identity) config() Config {
	cfg := Config{
		HardwareAddr: []byte(id.HardwareAddr), ClientID: id.ClientID, HostName: id.HostName,
		Options: map[uint8][]byte{}, Request: id.Request, Probe: id.Probe,
	}
	for code, value := range id.Options {
		cfg.Options[code] = value
	}
	return cfg
}

// nothing is what a client without a lease has.
func (id identity) nothing() Lease {
	return Lease{HardwareAddr: []byte(id.HardwareAddr), ClientID: id.ClientID, HostName: id.HostName}
}

// at reports whether the client is on this interface.
func (id identity) at(netns, place, ifname string) bool {
	return id.Netns == netns && id.Place == place && id.IfName == ifname
}

// hexBytes are shown in JSON as people write them, not as base64.
type hexBytes []byte

// MarshalText implements encoding.TextMarshaler.
func (h hexBytes) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText implements encoding.TextUnmarshaler. None are not nil: see Config.Request.
func (h *hexBytes) UnmarshalText(b []byte) (err error) {
	*h, err = hex.AppendDecode([]byte{}, b)
	return err
}
