// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

// Package models is the root of the generated OVSDB models. Each folder below
// holds the schema it was generated from: OVN 23.03 for nb and sb, Open
// vSwitch 3.1 for ovs, the oldest versions supported. A client registers only
// the tables and columns it uses, so newer servers serve the same models.
package models

//go:generate go tool modelgen -extended -p nb -o nb nb/ovn-nb.ovsschema
//go:generate go tool modelgen -extended -p sb -o sb sb/ovn-sb.ovsschema
//go:generate go tool modelgen -extended -p ovs -o ovs ovs/vswitch.ovsschema
