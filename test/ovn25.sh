#!/bin/sh
# Copyright The ovn-dhcp-ipam Authors
# SPDX-License-Identifier: Apache-2.0
#
# Puts Debian 13's OVN 25.03 and Open vSwitch 3.5 into a folder of the user's
# cache, for tests that run on it instead of the system's, and prints the
# folder. Nothing on the system changes, and no root is needed. It does nothing
# if the folder is there. The folder is made elsewhere and renamed, so it is
# complete; one process at a time makes it.
#
#   bin/                              the programs, found by PATH
#   root/usr/share/{ovn,openvswitch}  the schemas that belong to them
#
# The folder's name ends with a hash of this script, which lab.OVN25 knows to
# compute: a checkout uses what its own script has made.
set -eu
. "${0%/*}/debian13.sh"

# The programs, and what they are linked with, the C library included.
packages='ovn-central=25.03.* ovn-host=25.03.* ovn-common=25.03.*
	openvswitch-switch=3.5.* openvswitch-common=3.5.*
	libc6 libssl3t64 libcap-ng0 libunbound8 libxdp1 libbpf1 libnuma1 libevent-2.1-7t64
	libelf1t64 zlib1g libzstd1 libgcc-s1 libudev1 libcap2'
programs='usr/bin/ovn-northd usr/bin/ovn-controller usr/bin/ovn-nbctl usr/bin/ovn-sbctl
	usr/bin/ovn-appctl usr/bin/ovn-trace
	usr/bin/ovs-vsctl usr/bin/ovs-appctl usr/bin/ovs-ofctl usr/bin/ovs-dpctl
	usr/bin/ovsdb-tool usr/bin/ovsdb-client usr/sbin/ovsdb-server
	usr/lib/openvswitch-switch/ovs-vswitchd'

fill() {
	configure
	say "fetching OVN 25.03 and Open vSwitch 3.5"
	# shellcheck disable=SC2086 # a list of words
	(cd apt/cache && apt-get -q download $packages >&2)
	say "unpacking them"
	for package in apt/cache/*.deb; do
		unpack "$package" root
	done
	rm -r apt
	for program in $programs; do
		wrap "$program"
	done
}

cached ovn25.03
