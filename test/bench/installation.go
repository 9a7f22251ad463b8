// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/kube"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/lab"
	"github.com/ovn-dhcp-ipam/ovn-dhcp-ipam/test/site"
)

// installation is a site whose objects are in the Kubernetes API, with the rights that
// the product's manifest gives it.
type installation struct {
	*site.Site
	plane *kube.ControlPlane
}

// install starts an installation with so many nodes, which the caller has to stop.
func (b *bench) install(ctx context.Context, nodes int) (*installation, error) {
	plane, err := kube.Start(ctx, kube.Options{})
	if err != nil {
		return nil, err
	}
	s, err := site.Start(ctx, site.Options{Bin: b.bin, Kube: plane, RBAC: "deploy/rbac.yaml", Lab: lab.Options{Nodes: nodes}})
	if err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return &installation{Site: s, plane: plane}, nil
}

// Stop ends the site and then its control plane.
func (s *installation) Stop() error { return errors.Join(s.Site.Stop(), s.plane.Stop()) }
