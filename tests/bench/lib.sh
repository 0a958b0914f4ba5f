#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the benchmarks share: the machine's description, rounds, medians with their spread, the JSON file. Benchmarks
# print numbers and never decide: they fail only if something did not run. Sourced in the root of the tree.
set -u
export LC_ALL=C

build=${BUILD:-build}
# shellcheck disable=SC2034 # the benchmarks use it
rounds=${ROUNDS:-3}      # interleaved: what is compared runs in turn within each round

open_bench() # name
{
	bench_name=$1
	work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-bench-XXXXXX") || exit 1
	trap close_bench EXIT
	trap 'exit 130' INT TERM HUP
	# shellcheck source=tools/demo/compare.sh
	. tools/demo/compare.sh
	machine=$(describe_machine)
	echo "$machine"
}

# The benchmark's own program, bench_NAME.c.
build_program()
{
	program=$build/bench-bin/bench_$bench_name
	"${MAKE:-make}" -s --no-print-directory BUILD="$build" "$program" || give_up "bench_$bench_name does not build"
}

close_bench()
{
	compare_close
	rm -rf "$work"
}

give_up() # reason
{
	echo "$bench_name: $1" >&2
	exit 1
}

describe_machine()
{
	local cpu memory
	cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
	memory=$(awk '/^MemTotal/ {printf "%.1f GiB", $2 / 1048576}' /proc/meminfo)
	echo "Linux $(uname -r), ${cpu:-$(uname -m)}, $(nproc) CPUs, $memory, $(findmnt -no FSTYPE,SOURCE --target "$work" | tr -s ' ')"
}

# One round's value of a metric; names are of [a-z0-9_].
note() { echo "$1 $2" >>"$work/metrics"; } # name value

# "MEDIAN MIN MAX ROUNDS" of a metric.
spread_of() # name
{
	awk -v name="$1" '$1 == name {print $2}' "$work/metrics" | sort -g | awk '
		{v[NR] = $1}
		END {
			median = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
			printf "%.6g %.6g %.6g %d\n", median, v[1], v[NR], NR
		}'
}
median_of() { spread_of "$1" | cut -d ' ' -f 1; }
# "MEDIAN (MIN..MAX)" with so many decimals, of the metric in units of `unit`.
show_spread() # name decimals [unit]
{
	spread_of "$1" | awk -v d="$2" -v u="${3:-1}" '{printf "%.*f (%.*f..%.*f)", d, $1 / u, d, $2 / u, d, $3 / u}'
}

write_results()
{
	local name separator=''
	mkdir -p "$build/bench"
	{
		printf '{"name":"%s","machine":"%s","metrics":{' "$bench_name" "${machine//[\\\"]/}"
		while read -r name; do
			spread_of "$name" | awk -v n="$name" -v s="$separator" \
				'{printf "%s\"%s\":{\"median\":%s,\"min\":%s,\"max\":%s,\"rounds\":%d}", s, n, $1, $2, $3, $4}'
			separator=,
		done < <(cut -d ' ' -f 1 "$work/metrics" | sort -u)
		printf '}}\n'
	} >"$build/bench/$bench_name.json"
	echo "$build/bench/$bench_name.json"
}
