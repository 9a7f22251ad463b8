// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ovn-org/libovsdb/cache"
	"github.com/ovn-org/libovsdb/model"
)

// spread knows in which tables groups of a kind have rows, or have had. Most have
// them in one, and need not be looked for in the others. The kind of a group is what
// comes before the first slash of its key.
type spread struct {
	mu     sync.Mutex
	tables map[string]map[string]bool // by kind
}

func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	return kind
}

func (s *spread) add(key, table string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables == nil {
		s.tables = map[string]map[string]bool{}
	}
	kind := kindOf(key)
	if s.tables[kind] == nil {
		s.tables[kind] = map[string]bool{}
	}
	s.tables[kind][table] = true
}

func (s *spread) has(key, table string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[kindOf(key)][table]
}

// follow learns of the rows that are there, and of those that come.
func (s *spread) follow(c *cache.TableCache) error {
	note := func(table string, row model.Model) { s.add(owner(row), table) }
	c.AddEventHandler(&cache.EventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(table string, _, after model.Model) { note(table, after) },
	})
	for table := range indexed() {
		index, err := c.Table(table).Index("external_ids|" + OwnerKey)
		if err != nil {
			return fmt.Errorf("rows of %s by owner: %w", table, err)
		}
		for key := range index {
			s.add(key.(string), table)
		}
	}
	return nil
}

// write learns of the rows that changes make.
func (s *spread) write(changes []Change) {
	for _, c := range changes {
		addTable(s, c.Key, c.Switches)
		addTable(s, c.Key, c.Ports)
		addTable(s, c.Key, c.PortGroups)
		addTable(s, c.Key, c.AddressSets)
		addTable(s, c.Key, c.ACLs)
		addTable(s, c.Key, c.QoS)
		addTable(s, c.Key, c.Routers)
		addTable(s, c.Key, c.RouterPorts)
		addTable(s, c.Key, c.RouterPolicies)
	}
}

func addTable[T row[T]](s *spread, key string, edits []Edit[T]) {
	for _, e := range edits {
		if e.Want != nil {
			s.add(key, (*e.Want).identity().table)
			return
		}
	}
}
