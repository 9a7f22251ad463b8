# Copyright The ovn-dhcp-ipam Authors
# SPDX-License-Identifier: Apache-2.0
#
# Functions for scripts that put packages of Debian 13 into a folder of the
# user's cache. Nothing on the system changes, and no root is needed. It is
# sourced by a script in this folder, which sets -eu.

say() { echo "${0##*/}: $*" >&2; }

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

# configure writes an apt.conf to apt/ by which apt knows nothing but Debian 13,
# has no package installed, and keeps everything in apt/. Of the system's
# configuration it keeps how to fetch (a proxy, say), and not what to run after
# it.
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
			Debug::NoLocking "true";
		END
	} >apt/apt.conf
	export APT_CONFIG="$PWD/apt/apt.conf"
	say "reading the package lists of Debian 13"
	apt-get -q update >&2
}

# unpack PACKAGE FOLDER unpacks the file of a package, without what programs
# don't need.
unpack() {
	mkdir -p "$2"
	dpkg-deb --fsys-tarfile "$1" >apt/tar
	tar -x -C "$2" -f apt/tar --exclude='./etc' --exclude='./var' \
		--exclude='./usr/share/doc' --exclude='./usr/share/man' --exclude='./usr/share/locale'
}

# wrap PROGRAM makes bin/NAME for root/PROGRAM: it has to be run by the loader it
# was linked for, with the libraries beside it. It works wherever the folder is.
wrap() {
	mkdir -p bin
	loader=$(echo root/usr/lib/*-linux-gnu*/ld-linux*.so.*)
	name=${1##*/}
	cat >"bin/$name" <<-END
		#!/bin/sh
		d=\${0%/*}/..
		exec "\$d/$loader" --argv0 $name --library-path "\$d/${loader%/*}" "\$d/root/$1" "\$@"
	END
	chmod 755 "bin/$name"
	"bin/$name" --version >/dev/null || fail "$name does not run on this machine"
}

# cached NAME prints a folder of the cache. If it is not there, the function
# fill, which the script has, is called in a new one that is then renamed, so
# that the folder is complete; one process at a time does this. The folder's
# name ends with a hash of the script: a checkout uses what its own has made.
cached() {
	cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/ovn-dhcp-ipam
	case $cache in
	/*) ;;
	*) fail "the cache folder $cache is not an absolute path" ;;
	esac
	folder=$cache/$1-$(sha256sum <"$0" | cut -c 1-12)
	if [ -d "$folder" ]; then
		echo "$folder"
		return
	fi

	command -v apt-get >/dev/null || fail "this system has no apt-get to fetch packages of Debian 13 with"
	mkdir -p "$cache"
	exec 9>"$cache/$1.lock"
	flock -n 9 || {
		say "waiting for another process that does the same"
		flock 9
	}
	# What was killed before it was done has left its work.
	rm -rf "$cache/$1".tmp.*
	if [ ! -d "$folder" ]; then
		work=$(mktemp -d "$cache/$1.tmp.XXXXXX")
		trap 'rm -rf "$work"' EXIT
		trap 'exit 1' HUP INT TERM
		cd "$work"
		fill
		chmod 755 "$work"
		mv "$work" "$folder"
		say "$folder is complete"
	fi
	echo "$folder"
}
