#!/bin/sh
# Copyright The ovn-dhcp-ipam Authors
# SPDX-License-Identifier: Apache-2.0
#
# Puts Debian 13's QEMU and kernel into a folder of the user's cache, for the
# tests that need a machine with hardware of its own, and prints the folder.
# Nothing on the system changes, and no root is needed. It does nothing if the
# folder is there.
#
#   bin/qemu-system-x86_64   QEMU with its firmware
#   vmlinuz                  the kernel
#   modules/                 modules of its, not compressed
set -eu
. "${0%/*}/debian13.sh"

# The kernel's folders that have what the guest loads, and what that depends on.
modules='drivers/dca drivers/i2c/algos drivers/net drivers/pci drivers/vfio net/802 net/bridge net/core net/llc virt'

fill() {
	configure
	say "fetching QEMU and a kernel"
	apt-get -qq install --download-only --no-install-recommends qemu-system-x86 >&2
	kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *\(linux-image-[^ ]*\)$/\1/p')
	(cd apt && apt-get -qq download "$kernel" >&2)
	say "unpacking them"
	mkdir modules
	for package in apt/cache/archives/*.deb; do
		unpack "$package" root
	done
	unpack apt/"$kernel"_*.deb linux
	mv linux/boot/vmlinuz-* vmlinuz
	for part in $modules; do
		find linux -path "*/kernel/$part/*" -name '*.ko.xz' -exec mv -t modules {} +
	done
	busybox unxz modules/*.xz
	rm -r apt linux
	wrap usr/bin/qemu-system-x86_64
}

cached qemu
