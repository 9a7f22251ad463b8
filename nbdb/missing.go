// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import "sync"

// missing has the keys of the port groups that do without a port, by the port's
// name.
type missing struct {
	mu   sync.Mutex
	keys map[string]map[string]bool
}

func (m *missing) add(keys map[string][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for port, of := range keys {
		if m.keys[port] == nil {
			m.keys[port] = map[string]bool{}
		}
		for _, key := range of {
			m.keys[port][key] = true
		}
	}
}

// come forgets a port that is there and calls tell with each key.
func (m *missing) come(port string, tell func(key string)) {
	m.mu.Lock()
	keys := m.keys[port]
	delete(m.keys, port)
	m.mu.Unlock()
	for key := range keys {
		tell(key)
	}
}
