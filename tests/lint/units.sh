#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# systemd-analyze ends with 0 on an unknown key or a bad value, so a unit is right only if it prints nothing.
# tests/lint/units.sh DIRECTORY: every *.service.in and *.socket.in there.
set -u
command -v systemd-analyze >/dev/null || { echo 'systemd-analyze is not installed' && exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for unit in "$1"/*.service.in "$1"/*.socket.in; do
	[ -e "$unit" ] || continue
	# The program need not be installed here, so another one stands in for it.
	sed -e 's|@sbindir@/.*|/bin/true|' -e 's|@sysconfdir@|/etc|g' -e 's|^Documentation=.*||' "$unit" >"$work/$(basename "$unit" .in)"
done
found=$(cd "$work" && SYSTEMD_LOG_LEVEL=warning systemd-analyze --man=no --recursive-errors=no verify ./* 2>&1)
status=$?
[ -z "$found" ] || echo "$found"
[ $status = 0 ] && [ -z "$found" ]
