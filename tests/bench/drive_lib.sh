#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Drives for benchmarks: loop devices with file systems of their own, each as slow as wanted (blkio throttle of cgroup v1, on
# the root group, so for whoever reads them). A library: the caller has $work and calls close_drives before it ends.
# Root only; can_have_drives says why not.

declare -A drive_device drive_number
throttle_file=/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device
throttle_in_use=

can_have_drives()
{
	[ "$(id -u)" = 0 ] || { reason='loop devices need root'; return 1; }
	[ -w $throttle_file ] || { reason='slow drives need the blkio controller of cgroup v1'; return 1; }
	local tool
	for tool in losetup mkfs.ext4 mount; do
		command -v $tool >/dev/null || { reason="$tool is missing"; return 1; }
	done
	[ -e /dev/loop-control ] || { reason='there are no loop devices'; return 1; }
}

# A drive of so many MiB, mounted at $work/NAME.
open_drive() # name mebibytes
{
	local image=$work/$1.image
	truncate -s "$2"M "$image" && mkfs.ext4 -q -F -m 0 -E lazy_itable_init=0,lazy_journal_init=0 "$image" || return
	drive_device[$1]=$(losetup --show -f --direct-io=on "$image") || return
	drive_number[$1]=$(lsblk -ndo MAJ:MIN "${drive_device[$1]}" | tr -d ' ')
	mkdir -p "$work/$1" && mount "${drive_device[$1]}" "$work/$1"
}

throttle() # name bytes-a-second, 0: not
{
	echo "${drive_number[$1]} $2" >$throttle_file || return
	throttle_in_use=1
}

close_drives()
{
	local name
	for name in "${!drive_device[@]}"; do
		[ -z "$throttle_in_use" ] || echo "${drive_number[$name]} 0" >$throttle_file
		umount "$work/$name" 2>/dev/null || umount -l "$work/$name" 2>/dev/null
		losetup -d "${drive_device[$name]}"
		rm -f "$work/$name.image"
	done
	drive_device=()
}
