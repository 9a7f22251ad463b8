// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package nbdb

import (
	"maps"
	"sync"

	"github.com/ovn-org/libovsdb/model"
)

// addressSetModel and portGroupModel are rows in libovsdb's cache. They have the
// columns that grow with the network, and libovsdb's work on an update grows
// with the column: above a millisecond for one element of 5,000. So the cache
// never has the elements. It makes an update by cloning its row, applying the
// difference that the server sends, and storing a clone of the result: in a
// column that is empty the difference stays as it is, and the last clone hands
// it over to the row's mirror. The clones that readers get have nothing to hand
// over.
type (
	addressSetModel struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
		Addresses   []string          `ovsdb:"addresses"`
		mirror      *mirror
	}
	portGroupModel struct {
		UUID        string            `ovsdb:"_uuid"`
		Name        string            `ovsdb:"name"`
		ExternalIDs map[string]string `ovsdb:"external_ids"`
		Ports       []string          `ovsdb:"ports"`
		mirror      *mirror
	}
)

// GetUUID is as in generated models.
func (m *addressSetModel) GetUUID() string { return m.UUID }

// GetName is as in generated models.
func (m *addressSetModel) GetName() string { return m.Name }

// GetExternalIDs is as in generated models.
func (m *addressSetModel) GetExternalIDs() map[string]string { return m.ExternalIDs }

// GetUUID is as in generated models.
func (m *portGroupModel) GetUUID() string { return m.UUID }

// GetName is as in generated models.
func (m *portGroupModel) GetName() string { return m.Name }

// GetExternalIDs is as in generated models.
func (m *portGroupModel) GetExternalIDs() map[string]string { return m.ExternalIDs }

// CloneModel is a copy without Addresses, which go to the mirror.
func (m *addressSetModel) CloneModel() model.Model {
	handOver(&m.mirror, &m.Addresses)
	return &addressSetModel{UUID: m.UUID, Name: m.Name, ExternalIDs: maps.Clone(m.ExternalIDs), mirror: m.mirror}
}

// CloneModel is a copy without Ports, which go to the mirror.
func (m *portGroupModel) CloneModel() model.Model {
	handOver(&m.mirror, &m.Ports)
	return &portGroupModel{UUID: m.UUID, Name: m.Name, ExternalIDs: maps.Clone(m.ExternalIDs), mirror: m.mirror}
}

// CloneModelInto is CloneModel to another row.
func (m *addressSetModel) CloneModelInto(to model.Model) {
	*to.(*addressSetModel) = *m.CloneModel().(*addressSetModel)
}

// CloneModelInto is CloneModel to another row.
func (m *portGroupModel) CloneModelInto(to model.Model) {
	*to.(*portGroupModel) = *m.CloneModel().(*portGroupModel)
}

// handOver takes the difference out of a row that is on its way to the cache. A
// row that is there has none, and is only read.
func handOver(m **mirror, difference *[]string) {
	if *m == nil {
		*m = &mirror{toggled: map[string]struct{}{}}
	}
	if len(*difference) > 0 {
		(*m).toggle(*difference)
		*difference = nil
	}
}

// mirror has the elements of one row's column. They come as the server sends
// them, which is the elements that are in one of the old and the new value
// (ovsdb-server(7), "update2"), and are sorted out when somebody looks.
type mirror struct {
	mu      sync.Mutex
	toggled map[string]struct{} // since the last look

	// With the session's lock:
	members *Members
	names   map[string]string // what elements are called in members, if otherwise
}

func (m *mirror) toggle(elements []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range elements {
		if _, ok := m.toggled[e]; ok {
			delete(m.toggled, e)
		} else {
			m.toggled[e] = struct{}{}
		}
	}
}

// take returns what was toggled since it was last called.
func (m *mirror) take() map[string]struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.toggled) == 0 {
		return nil
	}
	toggled := m.toggled
	m.toggled = map[string]struct{}{}
	return toggled
}

// look brings the members up to date. They are the same Members each time. The
// caller holds the session's lock.
func (m *mirror) look() *Members {
	if m.members == nil {
		m.members = NewMembers()
	}
	for e := range m.take() {
		m.put(e, !m.members.Has(e))
	}
	return m.members
}

// lookUp is look for elements that go by another name in members. One without
// name is not among them yet.
func (m *mirror) lookUp(name func(element string) (string, bool)) *Members {
	if m.members == nil {
		m.members, m.names = NewMembers(), map[string]string{}
	}
	var unnamed []string
	// The cache is asked for names without the lock that its updates need.
	for e := range m.take() {
		if called, ok := m.names[e]; ok {
			delete(m.names, e)
			m.put(called, false)
		} else if called, ok := name(e); ok {
			m.names[e] = called
			m.put(called, true)
		} else {
			unnamed = append(unnamed, e)
		}
	}
	m.toggle(unnamed)
	return m.members
}

func (m *mirror) put(element string, present bool) {
	if present {
		m.members.Add(element)
	} else {
		m.members.Remove(element)
	}
}
