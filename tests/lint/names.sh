#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Names that other files can see. What goes into libcnre (base, shm, client) begins with cnre_; elsewhere a name
# begins with its folder, or with the first word of a file in it, or its plural: loader_submit, of manager/loader*.c,
# curves_access, of policy/curve.c; kv_ is kvstore's. Reads object files: tests/lint/names.sh BUILD, in the root of a tree.
set -u
objects=${1:-build}/obj
bad=0
complain() { echo "$1" && bad=1; }

visible() { nm -g --defined-only --format=posix "$1" | awk '$2 ~ /^[TDBRVWi]$/ {print $1}'; }

for object in "$objects"/{base,shm,client,client/colibri}/*.o; do
	[ -e "$object" ] || continue
	while read -r name; do
		[[ $name == cnre_* ]] || complain "${object#"$objects"/}: $name does not begin with cnre_"
	done < <(visible "$object" | grep -vE '^(__asan|__ubsan|__odr_asan|__tsan|_\.stapsdt)')
done
for object in "$objects"/{policy,model,manager,gpu,kvstore}/*.o; do
	[ -e "$object" ] || continue
	folder=$(basename "$(dirname "$object")")
	modules=" $folder ${folder%store} $(for file in "$objects/$folder"/*.o; do basename "${file%%_*}" .o; done | tr '\n' ' ') "
	while read -r name; do
		word=${name%%_*}
		[ "$name" = main ] || [[ $modules == *" $word "* || $modules == *" ${word%s} "* ]] ||
			complain "${object#"$objects"/}: $name begins with no module of $folder/"
	done < <(visible "$object" | grep -vE '^(__asan|__ubsan|__odr_asan|__tsan|_\.stapsdt)')
done
exit $bad
