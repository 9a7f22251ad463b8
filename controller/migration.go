// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/nbdb"
)

// vmName names a pod's virtual machine in the cluster, "" for none.
func vmName(namespace string, p *pod) string {
	if p == nil || p.vm == "" {
		return ""
	}
	return namespace + "/" + p.vm
}

// sameVM reports whether one virtual machine runs in the pods of two ports: it may
// have its addresses on both.
func (in *inputs) sameVM(a, b key) bool {
	vm := vmName(a.namespace, in.pods[a.podName()])
	return vm != "" && vm == vmName(b.namespace, in.pods[b.podName()])
}

// migratesTo reports whether a port's virtual machine runs in another pod, with the
// same attachment, from which it migrates: podnet.MigrationSource.
func (in *inputs) migratesTo(k key, p *pod) bool {
	for name := range in.byVM.of(vmName(k.namespace, p)) {
		other := in.pods[name]
		if other == p || !other.active || other.leaving || cmp.Or(other.created.Compare(p.created), cmp.Compare(name, k.podName())) > 0 {
			continue
		}
		if slices.ContainsFunc(other.entries, func(e entry) bool { return e.key.nadKey == k.nadKey && e.err == nil }) {
			return true
		}
	}
	return false
}

// prepared is the port of a migration's target until it is activated: it takes part
// in nothing, and two ports with one address would have conflicting flows.
func prepared(rows nbdb.Rows, mac string) nbdb.Rows {
	for i := range rows.Ports {
		p := &rows.Ports[i]
		p.Addresses, p.PortSecurity, p.Enabled = nil, []string{mac}, new(bool)
	}
	return rows
}
