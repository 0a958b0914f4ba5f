#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed units under a real systemd: boots one as PID 1 of a container (systemd-nspawn) over this machine's own root
# with a throw-away overlay, installs the build into it, and runs tests/system/systemd/driver.sh there: socket activation
# and who may connect, kill -9, a hang, restart, stop, prefixes, confinement, a second instance, memory pressure, log-out. Nothing
# is written outside of a temporary folder. Exit status 0 passed, 1 failed, 77 not possible here (the last line says why).
# Needs root.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
boot_limit=100 # seconds for all of it; it takes 20
skip() { echo "$1"; exit 77; }

# ---- inside of new mount and process namespaces: systemd.sh boot WORK BUILD NAME ----

# A cgroup of its own on version 2, whatever the machine has mounted: systemd's cgroups begin there.
enter_cgroup() # name
{
	umount -l /sys/fs/cgroup 2>/dev/null
	mount -t cgroup2 cgroup2 /sys/fs/cgroup && mkdir -p "/sys/fs/cgroup/$1" && echo 0 >"/sys/fs/cgroup/$1/cgroup.procs"
}

mount_root() # work
{
	mkdir -p "$1/overlay" && mount -t tmpfs -o size=512m tmpfs "$1/overlay" || return
	mkdir "$1/overlay/upper" "$1/overlay/work" "$1/overlay/root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$1/overlay/upper,workdir=$1/overlay/work" "$1/overlay/root"
}

# What is built, not built again: other flags than these must not get into it.
install_tree() # build root
{
	"${MAKE:-make}" --no-print-directory -o all install BUILD="$1" DESTDIR="$2" prefix=/usr unitdir=/usr/lib/systemd/system WITH_SYSTEMD=yes
}

# Only our units and what systemd itself needs; no service of this machine starts in the container.
prepare_root() # work root
{
	rm -rf "$2"/etc/systemd/system/*.wants "$2"/etc/cnre "$2"/etc/systemd/system/cnre*
	: >"$2/etc/machine-id"
	cp -r "$1/checkpoint" "$2/srv/cnre-model" && chmod -R a+rX "$2/srv/cnre-model"
	cat >"$2/etc/systemd/system/driver.service" <<-UNIT
		[Unit]
		Requires=dbus.socket basic.target
		After=basic.target dbus.socket
		SuccessAction=poweroff-force
		FailureAction=poweroff-force
		[Service]
		Type=oneshot
		ExecStart=/bin/bash /mnt/share/driver.sh
		StandardOutput=append:/mnt/share/driver.log
		StandardError=inherit
		TimeoutStartSec=$((boot_limit - 20))
	UNIT
}

if [ "${1-}" = boot ]; then
	trap 'exit 1' TERM # the first process of a namespace ignores what it does not handle
	work=$2 root=$2/overlay/root
	enter_cgroup "$4" && mount_root "$work" && install_tree "$3" "$root" && prepare_root "$work" "$root" || exit 3
	mount -t tmpfs tmpfs /run # nspawn keeps notes there
	export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
	exec systemd-nspawn --quiet --register=no --keep-unit --directory="$root" --private-network --machine=cnretest \
		--capability=CAP_IPC_LOCK --console=pipe --bind="$work/share:/mnt/share" --boot systemd.unit=driver.service systemd.show_status=0
fi

# ---- outside ----

[ "$(id -u)" = 0 ] || skip 'needs root: it boots a container'
for program in systemd-nspawn unshare make cc; do
	command -v $program >/dev/null || skip "$program is not installed"
done
for program in cnre-managerd cnrectl cnre-gen cnre-olmoe libcnre.so cnre-counters.7; do
	[ -e "$build/$program" ] || skip "$build/$program is not built"
done
! nm "$build/cnre-managerd" 2>/dev/null | grep -qE '__(asan|tsan)_init' || skip 'a sanitizer needs what the unit forbids'

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
name=cnre-test-${work##*-}
container=

# Namespaces take their mounts and processes with them; a cgroup stays, and is seen wherever its version is mounted: that
# of the container, and of pressure.sh below our own one of version 1.
remove_cgroup() # mount options...
{
	mkdir -p "$work/cgroup"
	# shellcheck disable=SC2016 # expanded there
	unshare --mount --propagation private bash -c 'mount "${@:3}" cgroup "$1" 2>/dev/null || exit
		for ((i = 0; i < 100; i++)); do
			[ -n "$(find "$1" -depth -type d -path "*/$2*" -print -exec rmdir {} + 2>/dev/null)" ] || exit
			sleep 0.05 # processes that were killed are still going
		done' - "$work/cgroup" "$name" "$@"
}
close_test()
{
	[ -z "$container" ] || { kill "$container" && wait "$container"; } 2>/dev/null
	remove_cgroup -t cgroup2
	remove_cgroup -t cgroup -o memory
	rm -rf "$work"
}
trap close_test EXIT
trap 'exit 1' INT TERM HUP

unshare --mount --propagation private bash -c "$(declare -f enter_cgroup mount_root); enter_cgroup $name && mount_root $work" >"$work/log" 2>&1 ||
	skip "no overlay or no cgroup version 2 can be mounted here: $(tail -n 1 "$work/log")"

mkdir "$work/share"
cp tests/system/systemd/*.sh "$work/share/"
echo "$name" >"$work/share/name"
"$build/cnre-gen" --family olmoe --out "$work/checkpoint" --layers 4 --experts 32 --top-k 2 --hidden 64 --intermediate 64 --vocab 512 --seed 1 >"$work/log" 2>&1 &&
	cc -std=c11 -D_GNU_SOURCE -O1 -Iclient -o "$work/share/steady" tests/system/systemd/steady.c -L"$build" -lcnre -pthread &&
	cc -std=c11 -D_GNU_SOURCE -O1 -o "$work/share/confined" tests/system/systemd/confined.c || { cat "$work/log"; exit 1; }

timeout -k 5 $boot_limit unshare --mount --propagation private --pid --fork --mount-proc --kill-child \
	bash tests/system/systemd.sh boot "$work" "$build" "$name" >"$work/console" 2>&1 </dev/null &
container=$!
wait $container
container=

if [ ! -e "$work/share/begun" ]; then
	cat "$work/console"
	skip "no systemd boots in a container here: $(tail -n 1 "$work/console" | tr -d '\r')"
fi
cat "$work/share/results"
if ! grep -q '^done$' "$work/share/results" || grep -q '^FAILED' "$work/share/results"; then
	grep -v '^$' "$work/share/driver.log" | tail -n 60 | sed 's/^/    | /'
	tail -n 40 "$work/share/journal" 2>/dev/null | sed 's/^/    journal | /'
	grep -q '^done$' "$work/share/results" || echo 'FAILED: the driver did not come to its end'
	exit 1
fi
echo 'units: activation, kill, hang, restart, stop, prefixes, confinement, a second instance, memory pressure and log-out do as documented'
