// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
)

// States of an attachment.
const (
	stateAdding  = "adding"  // an ADD is under way, or was when the daemon ended
	stateLive    = "live"    // the ADD succeeded
	stateLeaving = "leaving" // to be undone
)

// attachment is the record of one interface that an ADD made or is making:
// all that is needed to undo it. It is on disk before the first side effect.
type attachment struct {
	State       string    `json:"state"`
	Since       time.Time `json:"since"`
	ContainerID string    `json:"container_id"`
	IfName      string    `json:"ifname"`
	Netns       string    `json:"netns"`
	HostIfName  string    `json:"host_ifname"`
	Namespace   string    `json:"namespace"`
	Pod         string    `json:"pod"`
	UID         types.UID `json:"uid"`
	Network     string    `json:"network"`
	NADKey      string    `json:"nad_key"`
	MAC         string    `json:"mac"`
	// Lease is what the pod holds and has to give back.
	Lease *dhcp.Lease `json:"lease,omitempty"`
	// Result is the CNI result of the ADD, in the newest version of CNI.
	Result json.RawMessage `json:"result,omitempty"`
}

// key names the attachment: CNI identifies it by container and interface.
func (a attachment) key() string { return attachmentKey(a.ContainerID, a.IfName) }

func attachmentKey(containerID, ifname string) string { return containerID + ":" + ifname }

// supersedes reports whether a stands for the same DHCP client as old and was
// made later: a newer sandbox of the same pod, or a newer pod of the same name.
// What the two share, the lease above all, is then a's.
func (a attachment) supersedes(old attachment) bool {
	return a.key() != old.key() && a.Network == old.Network && a.MAC == old.MAC && a.Since.After(old.Since)
}

// superseded reports whether a newer attachment has taken a's place.
func (s *Server) superseded(a attachment) bool {
	for _, other := range s.records.All() {
		if other.State != stateLeaving && other.supersedes(a) {
			return true
		}
	}
	return false
}

// open makes the record of an ADD and picks the name of its host interface:
// as much of the container's id as fits before an index that makes it unique.
func (s *Server) open(a attachment) (attachment, error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	taken := map[string]bool{}
	for _, other := range s.records.All() {
		taken[other.HostIfName] = true
	}
	for index := 0; a.HostIfName == "" || taken[a.HostIfName]; index++ {
		a.HostIfName = hostIfName(a.ContainerID, index)
	}
	return a, s.records.Put(a.key(), a)
}

const maxIfName = 15

func hostIfName(containerID string, index int) string {
	suffix := fmt.Sprintf("_%d", index)
	return containerID[:min(len(containerID), maxIfName-len(suffix))] + suffix
}
