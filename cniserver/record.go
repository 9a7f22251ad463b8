// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	ktypes "k8s.io/apimachinery/pkg/types"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/dhcp"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
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
	State string `json:"state"`
	// Sequence orders the attachments of a node by the time of their ADD.
	Sequence    uint64     `json:"sequence"`
	ContainerID string     `json:"container_id"`
	IfName      string     `json:"ifname"`
	Netns       string     `json:"netns"`
	HostIfName  string     `json:"host_ifname"`
	Namespace   string     `json:"namespace"`
	Pod         string     `json:"pod"`
	UID         ktypes.UID `json:"uid"`
	Network     string     `json:"network"`
	NADKey      string     `json:"nad_key"`
	MAC         string     `json:"mac"`
	// PhysicalNetwork and VLAN are where the network is beyond this node, and
	// MTU is its MTU.
	PhysicalNetwork string `json:"physical_network"`
	VLAN            int    `json:"vlan,omitempty"`
	MTU             int    `json:"mtu"`
	// VM is the name of the virtual machine whose guest has the address; empty for a
	// pod that has it itself. Discovered is what the ADD has found out of it.
	VM         string      `json:"vm,omitempty"`
	Discovered *dhcp.Lease `json:"discovered,omitempty"`
	// Device is the virtual function that it is made of; nil for a veth pair.
	// HostIfName is its representor then.
	Device *device `json:"device,omitempty"`
	// Watched is set while the guest is watched, for the address that it really has.
	Watched *watched `json:"watched,omitempty"`
	// Reported says that the ADD succeeded: what it discovered is the guest's by now.
	Reported bool `json:"reported,omitempty"`
	// DefaultRoute says that the pod's default route is the lease's.
	DefaultRoute bool `json:"default_route,omitempty"`
	// RouteMetric is the metric of the lease's routes in the pod, whatever the network's
	// configuration says by now.
	RouteMetric int `json:"route_metric,omitempty"`
	// Owing says that all is undone but that the lease is still to be given back.
	Owing bool `json:"owing,omitempty"`
	// External is set when the lease is not the keeper's.
	External *external `json:"external,omitempty"`
}

// key names the attachment: CNI identifies it by container and interface.
func (a attachment) key() string { return attachmentKey(a.ContainerID, a.IfName) }

func attachmentKey(containerID, ifname string) string { return containerID + ":" + ifname }

// supersedes reports whether a stands for the same DHCP client as old and was
// made later: a newer sandbox of the same pod, or a newer pod of the same name.
// What the two share, the lease above all, is then a's.
func (a attachment) supersedes(old attachment) bool {
	return a.Sequence > old.Sequence && a.Namespace == old.Namespace && a.Pod == old.Pod && a.NADKey == old.NADKey &&
		a.Network == old.Network && a.MAC == old.MAC
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

// open makes the record of an ADD and picks the name of its host interface, unless
// that is a representor: as much of the container's id as fits before an index that
// makes it unique.
// From an older attachment of the same DHCP client it takes over the lease, and
// an older ADD, which has lost its purpose, ends.
func (s *Server) open(ctx context.Context, a *adding) error {
	older, err := s.enroll(a)
	if err != nil || older == nil {
		return err
	}
	return s.keeper.Move(ctx, older.key(), a.key())
}

// enroll makes the record and returns the newest attachment that it supersedes,
// if there is one.
func (s *Server) enroll(a *adding) (older *attachment, err error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	taken := map[string]bool{}
	all := s.records.All()
	for _, other := range all {
		if other.ContainerID == a.ContainerID && other.NADKey == a.NADKey && other.key() != a.key() {
			return nil, fail(types.ErrInvalidEnvironmentVariables, fmt.Errorf("CNI_IFNAME %q: the pod has attachment %s as %q already; to have it twice, select it twice in annotation %s",
				a.IfName, a.NADKey, other.IfName, podnet.SelectionAnnotation))
		}
		taken[other.HostIfName] = true
		a.Sequence = max(a.Sequence, other.Sequence+1)
	}
	for key, other := range all {
		if !a.supersedes(other) {
			continue
		}
		if other.State == stateAdding {
			s.locks.end(key)
		}
		if older == nil || other.Sequence > older.Sequence {
			older = &other
		}
	}
	if a.Device != nil {
		return older, s.records.Put(a.key(), a.attachment)
	}
	for index, free := 0, false; !free; index++ {
		a.HostIfName = hostIfName(a.ContainerID, index)
		exists, err := hostLinkExists(a.HostIfName)
		if err != nil {
			return nil, err
		}
		free = !exists && !taken[a.HostIfName]
	}
	return older, s.records.Put(a.key(), a.attachment)
}

// close makes the record that of an ADD that succeeded. Should it not have, after
// all, what is undone is an ADD that has not.
func (s *Server) close(_ context.Context, a *adding) error {
	live := a.attachment
	live.State, live.Reported = stateLive, true
	return s.records.Put(a.key(), live)
}

const maxIfName = 15

func hostIfName(containerID string, index int) string {
	suffix := fmt.Sprintf("_%d", index)
	return containerID[:min(len(containerID), maxIfName-len(suffix))] + suffix
}
