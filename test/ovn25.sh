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

say() { echo "ovn25.sh: $*" >&2; }

fail() {
	say "$*"
	exit 1
}

# mirror prints the address of a Debian mirror that this machine's apt uses.
mirror() {
	# The label is known once apt has read the lists; other archives may have
	# a release of the same name.
	apt-get indextargets --format '$(LABEL) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
		sed -n 's/^Debian main //p' | grep . ||
		apt-get indextargets --no-release-info --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
		sed -n "s/^$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}") main //p"
}

# configure writes an apt.conf to apt/ by which apt knows nothing but Debian 13
# and keeps everything in apt/. Of the system's configuration it keeps how to
# fetch (a proxy, say), and not what to run after it.
configure() {
	mkdir -p apt/state/lists/partial apt/cache/archives/partial
	site=$(mirror | head -n 1)
	[ -n "$site" ] || fail "apt on this machine has no Debian mirror"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site trixie main" >apt/sources.list
	: >apt/status
	{
		apt-config dump | grep '^Acquire::' | grep -v '^Acquire::\(IndexTargets\|Languages\)'
		cat <<-END
			Dir::Etc::parts "/dev/null";
			Dir::Etc::main "/dev/null";
			Dir::Etc::sourcelist "$PWD/apt/sources.list";
			Dir::Etc::sourceparts "/dev/null";
			Dir::Etc::preferences "/dev/null";
			Dir::Etc::preferencesparts "/dev/null";
			Dir::State "$PWD/apt/state";
			Dir::State::status "$PWD/apt/status";
			Dir::Cache "$PWD/apt/cache";
			Acquire::Languages "none";
			APT::Sandbox::User "";
			APT::Update::Error-Mode "any";
		END
	} >apt/apt.conf
	export APT_CONFIG="$PWD/apt/apt.conf"
}

# unpack fills root/ from the packages in apt/.
unpack() {
	mkdir root
	for package in apt/cache/*.deb; do
		dpkg-deb --fsys-tarfile "$package" >apt/tar
		tar -x -C root -f apt/tar --exclude='./etc' --exclude='./var' \
			--exclude='./usr/share/doc' --exclude='./usr/share/man' --exclude='./usr/share/locale'
	done
	rm -r apt
}

# wrap makes bin/: a program has to be run by the loader it was linked for, with
# the libraries beside it. It works wherever the folder is.
wrap() {
	mkdir bin
	loader=$(echo root/usr/lib/*-linux-gnu*/ld-linux*.so.*)
	for program in $programs; do
		name=${program##*/}
		cat >"bin/$name" <<-END
			#!/bin/sh
			d=\${0%/*}/..
			exec "\$d/$loader" --argv0 $name --library-path "\$d/${loader%/*}" "\$d/root/$program" "\$@"
		END
		chmod 755 "bin/$name"
		"bin/$name" --version >/dev/null || fail "$name does not run on this machine"
	done
}

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/ovn-dhcp-ipam
case $cache in
/*) ;;
*) fail "the cache folder $cache is not an absolute path" ;;
esac
folder=$cache/ovn25.03-$(sha256sum <"$0" | cut -c 1-12)
if [ -d "$folder" ]; then
	echo "$folder"
	exit
fi

command -v apt-get >/dev/null || fail "this system has no apt-get to fetch OVN 25.03 with"
mkdir -p "$cache"
exec 9>"$cache/ovn25.lock"
flock -n 9 || {
	say "waiting for another process that fetches OVN 25.03"
	flock 9
}
# What was killed before it was done has left its work.
rm -rf "$cache"/ovn25.tmp.*
if [ ! -d "$folder" ]; then
	work=$(mktemp -d "$cache/ovn25.tmp.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	cd "$work"
	configure
	say "reading the package lists of Debian 13"
	apt-get -q update >&2
	say "fetching OVN 25.03 and Open vSwitch 3.5"
	# shellcheck disable=SC2086 # a list of words
	(cd apt/cache && apt-get -q download $packages >&2)
	say "unpacking them to $folder"
	unpack
	wrap
	chmod 755 "$work"
	mv "$work" "$folder"
fi
echo "$folder"
