// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cnirpc

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// wayTime is how long the way out of one attachment's interface is taken for that of
// others of the same network.
const wayTime = time.Minute

// network is a network, by the hash of its configuration: what is the same to the last
// byte has its interfaces put on the same device.
type network [sha256.Size]byte

// ways are the ways out that were found of late. Pods come in bursts, and to ask the kernel
// for each of them takes longer than the messages of DHCP do.
type ways struct {
	mu    sync.Mutex
	known map[network]way
}

type way struct {
	device string
	found  time.Time
}

// wayOut is the wayOut of an attachment's device: as it was found of late for another
// attachment of the network that is configured so, or else for this one.
func (s *Server) wayOut(configuration []byte, at place) (string, error) {
	of := network(sha256.Sum256(configuration))
	if device, ok := s.ways.get(of, time.Now()); ok {
		return device, nil
	}
	d, err := at.open()
	if err != nil {
		return "", err
	}
	defer d.Close()
	device := d.wayOut(s.host)
	if device != "" {
		s.ways.put(of, way{device, time.Now()})
	}
	return device, nil
}

// get returns the device of a way that isn't too old.
func (w *ways) get(of network, now time.Time) (device string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.known[of]
	return known.device, ok && !known.old(now)
}

// put notes a way, and forgets those that are too old.
func (w *ways) put(of network, found way) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.known, func(_ network, known way) bool { return known.old(found.found) })
	w.known[of] = found
}

func (w way) old(now time.Time) bool { return now.Sub(w.found) > wayTime }
