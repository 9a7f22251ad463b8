#!/bin/bash
# Copyright The ovn-dhcp-ipam Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds programs of others that the tests run, from the Go modules beside this
# file, each of which names its programs as tools:
#
#   build.sh [MODULE...]               build what is missing; all modules if none is given
#   build.sh --print-path [MODULE...]  build nothing; fail if something is missing
#
# The last line of the output is the folders with the programs, in the form of
# PATH; whatever else there is to say goes to standard error. The folders are
# outside the checkout and are named by what is built in them, so that a build
# is needed only when a version changes. Interrupted, it can simply be run again:
# a folder has its name only when it is complete.
#
# For another version of a program change it in its go.mod and run "go mod tidy"
# there; the replace lines of Kubernetes' own modules go with its version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/ovn-dhcp-ipam/tools
export CGO_ENABLED=0 GOTOOLCHAIN=auto GOWORK=off

say() { echo "tools: $*" >&2; }

# flags MODULE are the linker flags. The programs of Kubernetes say which
# version they are by what is set here.
flags() {
	local flags=(-s -w) version minor package
	if [ "$1" = kubernetes ]; then
		version=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' kubernetes/go.mod)
		minor=${version#v1.}
		for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
			flags+=(-X "$package.gitVersion=$version" -X "$package.gitMajor=1" -X "$package.gitMinor=${minor%%.*}"
				-X "$package.gitTreeState=clean" -X "$package.buildDate=1970-01-01T00:00:00Z")
		done
	fi
	echo "${flags[*]}"
}

# folder MODULE is where its programs are or will be.
folder() {
	local hash
	hash=$({ flags "$1" && cat "$1/go.mod" "$1/go.sum"; } | sha256sum)
	echo "$cache/$1-${hash:0:16}"
}

# build MODULE FOLDER
build() {
	local name=$1 to=$2 temporary=$cache/$1.tmp flags line status=0 said=0 packages=0 last=
	flags=$(flags "$name")
	rm -rf "$temporary"
	SECONDS=0
	say "$name: building, which can take minutes; at first its modules are downloaded"
	exec {output}< <(exec go build -C "$name" -v -trimpath -ldflags "$flags" -o "$temporary/" tool 2>&1)
	compiler=$!
	# It tells of every package. Reading that here, and not in a process of its
	# own, has the compiler end soon after this script, however that ends.
	while true; do
		if read -r -t 1 -u "$output" line; then
			case $line in
			"go: downloading "*) last=${line#go: } ;;
			*" "*) say "$name: $line" ;;
			*) packages=$((packages + 1)) last=$line ;;
			esac
		elif [ $? -le 128 ]; then
			break # the end of the output; it is more than 128 after a second of silence
		fi
		if [ $((SECONDS - said)) -ge 20 ]; then
			said=$SECONDS
			say "$name: $SECONDS s, $packages packages compiled, now $last"
		fi
	done
	exec {output}<&-
	wait "$compiler" || status=$?
	compiler=
	[ $status = 0 ] || { say "$name: go build failed, see above"; exit 1; }

	# The package of etcd's program is called server.
	[ ! -e "$temporary/server" ] || mv "$temporary/server" "$temporary/etcd"
	mv "$temporary" "$to"
	say "$name: built in $SECONDS s: $to"
	local old
	for old in "$cache/$name"-*; do
		[ "$old" = "$to" ] || rm -rf "$old"
	done
}

only_print=
[ "${1-}" != --print-path ] || { only_print=yes; shift; }
[ $# -gt 0 ] || set -- */

path= lock= compiler=
trap '[ -z "$compiler" ] || kill "$compiler" 2>/dev/null || true' EXIT
trap 'exit 1' HUP INT TERM
for name; do
	name=${name%/}
	[ -e "$name/go.mod" ] || { say "there is no module $name"; exit 1; }
	to=$(folder "$name")
	if [ ! -d "$to" ]; then
		[ -z "$only_print" ] || { say "$to is missing"; exit 1; }
		if [ -z "$lock" ]; then
			mkdir -p "$cache"
			exec {lock}>"$cache/lock"
			until flock -w 20 "$lock"; do say "waiting for another build"; done
		fi
		[ -d "$to" ] || build "$name" "$to"
	fi
	path=$path:$to
done
echo "${path#:}"
