#!/bin/sh
# Copyright The ovn-dhcp-ipam Authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs the distribution's packages that the lab and the tests need, on
# Debian and its kin. It does nothing if the programs are there. Services of
# the packages that it installs are neither started nor enabled: the lab runs
# its own.
set -eu

fail() {
	echo "packages.sh: $*" >&2
	exit 1
}

# su without a login shell leaves these out.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# A package, and a program or file that tells that it is there.
missing=
while read -r package what; do
	case $what in
	/*) [ -e "$what" ] ;;
	*) command -v "$what" >/dev/null ;;
	esac || missing="$missing $package"
done <<END
ovn-central ovn-northd
ovn-host ovn-controller
openvswitch-switch ovs-vswitchd
dnsmasq-base dnsmasq
kea-dhcp4-server kea-dhcp4
iproute2 ip
util-linux nsenter
ethtool ethtool
iputils-ping ping
tcpdump tcpdump
busybox busybox
gcc gcc
libc6-dev /usr/include/stdlib.h
END
missing=${missing# }
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null ||
	fail "this system has no apt-get; install what corresponds to Debian's: $missing"
[ "$(id -u)" = 0 ] || fail "root is needed to install: $missing"

work=$(mktemp -d)
policy=/usr/sbin/policy-rc.d
ours=
cleanup() {
	[ -z "$ours" ] || rm -f "$policy"
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# Nobody starts a service while this says no.
if [ ! -e "$policy" ]; then
	ours=yes
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi

installed() { dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort; }

# quiet COMMAND: its output is shown only if it fails.
quiet() {
	"$@" >"$work/log" 2>&1 </dev/null && return
	cat "$work/log" >&2
	return 1
}

export DEBIAN_FRONTEND=noninteractive
installed >"$work/before"
echo "packages.sh: reading the package lists"
quiet apt-get -q update || fail "apt-get update failed, see above"
echo "packages.sh: installing $missing"
# shellcheck disable=SC2086 # a list of words
quiet apt-get -qy install --no-install-recommends $missing || fail "apt-get install failed, see above"
installed >"$work/after"

# Where systemd starts services at boot, it shall not start these.
if [ -d /run/systemd/system ]; then
	for package in $(comm -13 "$work/before" "$work/after"); do
		for unit in $(dpkg -L "$package" | sed -n 's|^.*/systemd/system/\([^/]*\.service\)$|\1|p'); do
			case $unit in
			*@.service) ;; # a template
			*) systemctl --quiet disable --now "$unit" || fail "can't disable $unit" ;;
			esac
		done
	done
fi
