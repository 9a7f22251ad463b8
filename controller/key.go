// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/podnet"
)

// key names a group of rows: those of a network, or the port of one attachment
// of a pod.
type key struct {
	network string // of a network's key alone

	nadKey, namespace, pod string // of a port's
}

func (k key) isPort() bool { return k.network == "" }

func (k key) nad() string { return podnet.NADName(k.nadKey) }

func (k key) podName() string { return k.namespace + "/" + k.pod }

// compare orders ports by pod.
func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(k.podName(), other.podName()), strings.Compare(k.nadKey, other.nadKey))
}

// String is the owner of the group's rows.
func (k key) String() string {
	if k.isPort() {
		return "port/" + k.nadKey + "/" + k.podName()
	}
	return "network/" + k.network
}

// parseKey reads what String writes. Rows with another owner are not of a kind
// that this version knows.
func parseKey(owner string) (key, bool) {
	kind, rest, _ := strings.Cut(owner, "/")
	parts := strings.Split(rest, "/")
	n := len(parts)
	switch {
	case kind == "network" && rest != "":
		return key{network: rest}, true
	case kind == "port" && n > 2 && validNADKey(strings.Join(parts[:n-2], "/")):
		return key{nadKey: strings.Join(parts[:n-2], "/"), namespace: parts[n-2], pod: parts[n-1]}, true
	}
	return key{}, false
}

// validNADKey reports whether s is namespace/name or namespace/name/n, n ≥ 1.
func validNADKey(s string) bool {
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return false
	}
	if len(parts) == 2 {
		return true
	}
	n, err := strconv.Atoi(parts[2])
	return err == nil && n > 0 && strconv.Itoa(n) == parts[2]
}

// object names an object of the source.
type object struct{ kind, namespace, name string }

func podObject(name string) object { return named(kindPod, name) }
func nadObject(name string) object { return named(kindNAD, name) }

// named is an object by its "namespace/name".
func named(kind, name string) object {
	namespace, name, _ := strings.Cut(name, "/")
	return object{kind, namespace, name}
}

func (o object) String() string {
	if o.namespace == "" {
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}
