#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure that the Debian packages for one purpose are there: tests/setup.sh build|demo|check|bench.
# Asks dpkg what is installed and touches nothing when nothing is missing. Missing packages are installed through apt
# by root or by sudo without a password; anyone else gets the line to type, and exit status 1.
set -u

build='gcc g++ libc6-dev make pkg-config liburing-dev libjansson-dev libinih-dev libssl-dev libxxhash-dev libmicrohttpd-dev libncurses-dev systemtap-sdt-dev'
demo=$build
# bpftool, clang, libbpf-dev, libelf-dev cnre-inspect; libcriterion-dev unit tests; clang fuzzing; spin models of the protocol; fio, strace, jq, curl, prometheus, tmux, bpftrace,
# systemd-container, libpam-systemd system tests; mandoc, shellcheck, systemd lint.
check="$build bpftool libbpf-dev libelf-dev libcriterion-dev clang libclang-rt-14-dev spin fio strace jq curl prometheus tmux systemd systemd-container libpam-systemd mandoc shellcheck bpftrace"
bench="$build fio memcached jq"

case ${1-} in
build) wanted=$build ;;
demo) wanted=$demo ;;
check) wanted=$check ;;
bench) wanted=$bench ;;
*)
	echo 'usage: tests/setup.sh build|demo|check|bench' >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "setup: not a Debian system, so nothing was checked; needed are what Debian 12 calls: $wanted"
	exit 0
fi

missing=
for package in $wanted; do
	status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	as_root='sudo -n'
else
	echo "setup: packages are missing and this user may not install them. Type, then run make again:"
	echo "    sudo apt-get update && sudo apt-get install --no-install-recommends$missing"
	exit 1
fi

# Of prometheus the tests need the programs, not a service that listens to everybody: it is neither started nor left on.
policy=/usr/sbin/policy-rc.d has_policy=
keep_services_off()
{
	case " $missing " in *' prometheus '*) ;; *) return ;; esac
	[ ! -e $policy ] || return
	printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null && $as_root chmod 755 $policy && has_policy=yes
}
let_services_be()
{
	[ -z "$has_policy" ] || $as_root rm -f $policy
	case " $missing " in *' prometheus '*) ;; *) return ;; esac
	! command -v systemctl >/dev/null || $as_root systemctl disable prometheus.service >/dev/null 2>&1
}

echo "setup: installing with apt-get:$missing"
log=$(mktemp)
trap 'rm -f "$log"; let_services_be' EXIT
keep_services_off
# shellcheck disable=SC2086 # both are lists of words
if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >"$log" 2>&1 ||
	! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $missing >>"$log" 2>&1; then
	tail -n 30 "$log"
	echo "setup: apt-get failed; its last lines stand above. Try: apt-get install --no-install-recommends$missing"
	exit 1
fi
echo 'setup: done'
