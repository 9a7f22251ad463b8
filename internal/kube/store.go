// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// store has the objects of one kind as a reflector reports them. It tells of a
// change within the reflector's call: what an informer puts in between, a queue
// and two goroutines for each handler, costs time for every change and memory
// for all objects at the start.
type store struct {
	changed func(namespace, name string)
	filled  func() // all that exist have been told of, for the first time

	mu      sync.RWMutex
	objects map[cache.ObjectName]any
}

// object is one of the objects, nil when there is none.
func (s *store) object(namespace, name string) any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[cache.NewObjectName(namespace, name)]
}

// Add is Update.
func (s *store) Add(object any) error { return s.Update(object) }

// Update notes an object's new state.
func (s *store) Update(object any) error {
	return s.put(object, func(name cache.ObjectName) { s.objects[name] = trim(object) })
}

// Delete drops an object.
func (s *store) Delete(object any) error {
	return s.put(object, func(name cache.ObjectName) { delete(s.objects, name) })
}

func (s *store) put(object any, put func(name cache.ObjectName)) error {
	name, err := cache.ObjectToName(object)
	if err != nil {
		return fmt.Errorf("name of an object: %w", err)
	}
	s.mu.Lock()
	put(name)
	s.mu.Unlock()
	s.changed(name.Namespace, name.Name)
	return nil
}

// Replace replaces all objects. It tells of each of them, and of those that
// have gone.
func (s *store) Replace(objects []any, _ string) error {
	now := make(map[cache.ObjectName]any, len(objects))
	for _, object := range objects {
		name, err := cache.ObjectToName(object)
		if err != nil {
			return fmt.Errorf("name of an object: %w", err)
		}
		now[name] = trim(object)
	}
	s.mu.Lock()
	before, first := s.objects, s.objects == nil
	s.objects = now
	s.mu.Unlock()
	for name := range now {
		s.changed(name.Namespace, name.Name)
	}
	for name := range before {
		if now[name] == nil {
			s.changed(name.Namespace, name.Name)
		}
	}
	if first {
		s.filled()
	}
	return nil
}

// Resync has nothing to do: what is told once is looked at until it is done.
func (s *store) Resync() error { return nil }

// Transformer is applied to the objects that a reflector collects first.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return trim(object), nil }
}
