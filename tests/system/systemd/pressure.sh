# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # of driver.sh: unit, model, socket
# Sourced by driver.sh. Under the installed unit, with everything that it forbids, the manager watches memory pressure and
# gives way to it: programs that read a file through a group too small for it wait for memory, and the machine counts it.

squeeze_group= # of cgroup version 1, where that has the memory controller
open_squeeze()
{
	[ "$(stat -f -c %T .)" != tmpfs ] && dd if=/dev/zero of=squeeze.bytes bs=1M count=64 oflag=direct status=none || return
	# shellcheck disable=SC2016 # expanded there
	echo '[ -z "$1" ] || echo $$ >"$1/cgroup.procs"
		for i in 1 2 3 4; do while :; do cat squeeze.bytes >/dev/null; done & done; wait' >squeeze.sh
	! grep -qw memory /sys/fs/cgroup/cgroup.controllers || return 0
	mkdir -p /run/squeeze && mount -t cgroup -o memory cgroup /run/squeeze && squeeze_group=/run/squeeze/$(cat name) &&
		mkdir "$squeeze_group" && echo 4M >"$squeeze_group/memory.limit_in_bytes"
}
squeeze() { systemd-run --quiet --unit=squeeze -p WorkingDirectory=/mnt/share -p MemoryMax=4M bash squeeze.sh "$squeeze_group"; }
no_group() { rmdir "$squeeze_group" 2>/dev/null; }
close_squeeze()
{
	systemctl stop squeeze.service 2>/dev/null
	[ -z "$squeeze_group" ] || { wait_for no_group && umount /run/squeeze; }
	squeeze_group=
}

pool_bytes() { cnrectl --socket "$socket" --json status | number backed_bytes; }
has_shrunk() { [ "$(stat_of pressure_shrinks)" -gt 0 ]; }
says() { cnrectl --socket "$socket" status | grep -q "$1"; }

as_member timeout 20 cnre-olmoe --model "$model" --tokens "95 28 14" --steps 2 --threads 1 --cache cnre --socket "$socket" >&2
before_bytes=$(pool_bytes)
if ! as_stranger test -w /proc/pressure/memory; then
	check 'pressure: status says why nothing is watched' says '^pressure *not watched: /proc/pressure/memory: .'
elif ! open_squeeze; then
	check 'pressure: the unit watches that of the machine' says '^pressure *watched: /proc/pressure/memory'
	echo 'not checked: what memory pressure does, which cannot be made here' | tee -a results
else
	check 'pressure: the unit watches that of the machine' says '^pressure *watched: /proc/pressure/memory'
	squeeze
	check 'pressure: the manager gives way' wait_for has_shrunk
	check 'pressure: status says so' says '^DEGRADED *processes wait for memory'
	check "pressure: memory goes back: $(pool_bytes) of $before_bytes" [ "$(pool_bytes)" -lt "$before_bytes" ]
	check 'pressure: the log says so' eval "journalctl --no-pager -u $unit | grep -q 'memory: processes wait for memory'"
fi
close_squeeze
