#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# All lints, a line each; fails if one does. First the lints are tried on tests/lint/fixtures/, so that a lint that no
# longer catches anything is noticed. make lint runs it in the root, with BUILD naming what was built.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
bad=0
folders=
for folder in base shm policy model gpu kvstore client manager engine tools; do
	[ ! -d $folder ] || folders="$folders $folder"
done

lint() # name command...
{
	local name=$1 output status
	shift
	output=$("$@" 2>&1)
	status=$?
	case $status in
	0) echo "lint $name: ok" ;;
	77) echo "lint $name: skipped" ;;
	*) echo "lint $name: FAILED" && bad=1 ;;
	esac
	[ -z "$output" ] || sed 's/^/    /' <<<"$output"
}

atomics()
{
	local status
	# Programs in the kernel have other memory to share, and only the builtins that it has.
	# shellcheck disable=SC2046 # names without spaces
	awk -f tests/lint/atomics.awk $(find $folders -name '*.bpf.c' -prune -o -name '*.[ch]' -print | sort) >"$work/atomics"
	status=$?
	sort "$work/atomics"
	return $status
}

includes()
{
	find $folders tests -path tests/lint/fixtures -prune -o -name '*.[ch]' -print0 |
		LC_ALL=C xargs -0 awk -f tests/lint/includes.awk
}

# Variables that a sourced file sets or reads look unset or unused to shellcheck.
scripts()
{
	command -v shellcheck >/dev/null || { echo 'shellcheck is not installed' && return 77; }
	find tests tools .ci -path tests/lint/fixtures -prune -o \( -name '*.sh' -o -path .ci/run \) -print0 | xargs -0 shellcheck -x -S warning -e SC2034,SC2154 -f gcc
}

# Information only, and only .c files: tables in headers are aligned by hand.
format()
{
	command -v clang-format >/dev/null || { echo 'clang-format is not installed' && return 77; }
	local file changed=0
	while read -r file; do
		clang-format --dry-run -Werror "$file" 2>/dev/null || changed=$((changed + 1))
	done < <(find $folders tests -path tests/lint/fixtures -prune -o -name '*.c' -print)
	[ $changed = 0 ] || echo "clang-format would change $changed files"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lint 'of the lints' tests/lint/selftest.sh
lint layers tests/lint/layers.sh
lint includes includes
lint atomics atomics
lint names tests/lint/names.sh "$build"
lint abi tests/lint/abi.sh client/cnre/cnre.h client/libcnre.map "$build/libcnre.so"
lint readme tests/lint/readme.sh
lint marks tests/lint/marks.sh
lint manuals tests/lint/manuals.sh doc/man/*.[1-8] "$build/cnre-counters.7"
lint probes tests/lint/probes.sh doc/man/cnre-probes.7 base/probes.def "$build/cnre-managerd" "$build/libcnre.so"
lint units tests/lint/units.sh systemd
lint scripts scripts
lint format format
exit $bad
