#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# systemd-analyze ends with 0 on an unknown key or a bad value, so a unit is right only if it prints nothing. Every service
# must also be confined: at most 2.0 of 10 by systemd-analyze security, which the units stay well below.
# tests/lint/units.sh DIRECTORY: every *.service.in and *.socket.in there, as the one unit and as the template that
# make install makes of it, and every *.slice.
set -u
command -v systemd-analyze >/dev/null || { echo 'systemd-analyze is not installed' && exit 77; }
exposure_most=20        # tenths
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

instance() # file unit name state
{
	# The program need not be installed here, so another one stands in for it.
	sed -e "s|@unit@|$2|g" -e "s|@name@|$3|g" -e "s|@state@|$4|g" -e 's|@sbindir@/.*|/bin/true|' -e 's|@sysconfdir@|/etc|g' \
		-e 's|^Documentation=.*||' "$1"
}
for unit in "$1"/*.service.in "$1"/*.socket.in "$1"/*.slice; do
	[ -e "$unit" ] || continue
	file=$(basename "$unit" .in)
	instance "$unit" "${file%.*}" managerd cnre >"$work/$file"
	[[ $unit != *.in ]] || instance "$unit" "${file%.*}@%i" %i cnre/%i >"$work/${file%.*}@.${file##*.}"
done
bad=0
found=$(cd "$work" && SYSTEMD_LOG_LEVEL=warning systemd-analyze --man=no --recursive-errors=no verify ./* 2>&1) || bad=1
[ -z "$found" ] || { echo "$found" && bad=1; }
for unit in "$work"/*.service; do
	[ -e "$unit" ] || continue
	found=$(systemd-analyze --no-pager --offline=true --threshold=$exposure_most security "$unit" 2>&1) ||
		{ tail -n 1 <<<"$found" && bad=1; }
done
exit $bad
