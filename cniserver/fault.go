//go:build !faultinjection

// Copyright The ovn-dhcp-ipam Authors
// SPDX-License-Identifier: Apache-2.0

package cniserver

// fault does nothing: only a build for tests has faults.
func fault(string) error { return nil }
