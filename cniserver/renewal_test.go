// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ktypes "k8s.io/apimachinery/pkg/types"
)

// TestReleasable has a lease to give back, and one pod in the API that may have it by now.
func TestReleasable(t *testing.T) {
	lease := leaseAt("192.0.2.10") // of 02:00:00:00:00:07
	s := newRecords(t)
	// The address was asked for, so that any pod can have it.
	a := attachment{Namespace: "ns", Pod: "web", UID: "u1", NADKey: "ns/lan/1", Network: "lan", MAC: lease.HardwareAddr.String(), State: stateLeaving}
	if err := s.records.Put("old", a); err != nil {
		t.Fatal(err)
	}
	const entry = `{"mac_address":"02:00:00:00:00:07","ip_addresses":["192.0.2.10/24"],"ipam_mode":"dhcp"}`
	for _, test := range []struct {
		name       string
		uid        ktypes.UID
		phase      corev1.PodPhase
		annotation string
		want       bool
	}{
		{"a pod that has it", "u2", corev1.PodRunning, `{"ns/lan":` + entry + `}`, false},
		{"a pod that waits", "u2", corev1.PodPending, `{"ns/lan":` + entry + `}`, false},
		{"by another attachment of the NAD", "u2", corev1.PodRunning, `{"ns/lan/2":` + entry + `}`, false},
		{"among others", "u2", corev1.PodRunning, `{"default":{},"ns/broken":{"mac_address":"zz"},"ns/lan":` + entry + `}`, false},
		{"a pod that has succeeded", "u2", corev1.PodSucceeded, `{"ns/lan":` + entry + `}`, true},
		{"a pod that has failed", "u2", corev1.PodFailed, `{"ns/lan":` + entry + `}`, true},
		{"another NAD", "u2", corev1.PodRunning, `{"ns/lan2":` + entry + `}`, true},
		{"another MAC address", "u2", corev1.PodRunning, `{"ns/lan":{"mac_address":"02:00:00:00:00:08"}}`, true},
		{"the pod itself", "u1", corev1.PodRunning, `{"ns/lan/1":` + entry + `}`, true},
		{"no annotation", "u2", corev1.PodRunning, ``, true},
		{"an annotation that is none", "u2", corev1.PodRunning, `[]`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := launcher("web", 0, test.annotation)
			pod.UID, pod.Status.Phase = test.uid, test.phase
			s.cfg.Pods = podList{pods: []*corev1.Pod{pod}}
			got, err := s.releasable(t.Context(), "old", lease)
			if err != nil || got != test.want {
				t.Errorf("releasable: %v, error %v", got, err)
			}
		})
	}
}

// TestProlongedLease has a lease that only lasts longer: the server has no vSwitch, no
// pods and no interface that could be written to.
func TestProlongedLease(t *testing.T) {
	s := newRecords(t)
	if err := s.records.Put("web", attachment{State: stateLive, MAC: "02:00:00:00:00:07"}); err != nil {
		t.Fatal(err)
	}
	old := leaseAt("192.0.2.10")
	now := old
	now.Acquired, now.Expires = old.Acquired.Add(time.Hour), old.Expires.Add(time.Hour)
	if err := s.leaseChanged(t.Context(), "web", old, now); err != nil {
		t.Error(err)
	}
}
