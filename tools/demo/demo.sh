#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make demo: three engines on one model that is half as large again as the memory for its experts, with the same memory
# used in three ways: one shared cache (CNRE), a private cache in each engine, the kernel's page cache (mmap). Prints a
# table, and writes $BUILD/demo/report.json. Takes about a minute, 1.2 GiB of disk and 1.5 GiB of memory; leaves nothing
# behind. The mmap part needs a memory cgroup, so root; without one it is left out and the table says why.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1

build=${BUILD:-build}
engine_count=3
steps=${STEPS:-96}       # tokens of each engine
layers=8 experts=64 top_k=8 hidden=768 intermediate=512 # experts of 2.25 MiB

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-demo-XXXXXX") || exit 1
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
trap 'compare_close; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

started=$SECONDS
progress() { printf '%3d s  %s\n' $((SECONDS - started)) "$1"; }
give_up() { echo "demo: $reason" >&2 && exit 1; }

human_bytes() { awk -v b="$1" 'BEGIN {if (b >= 1073741824) printf "%.2f GiB", b / 1073741824; else printf "%.0f MiB", b / 1048576}'; }

declare -A row json
# The result of the mode that has just run becomes a row of the table and an object of the report.
keep() # mode label
{
	row[$1]=$(printf '%-28s %8.2f %11s %11s %8d %8d %7d %9.1f s' "$2" "$tokens_per_second" "$(human_bytes "$bytes_read")" \
		"$(human_bytes "$resident_bytes")" "$hits" "$misses" "$joins" "$felt_wait_s")
	json[$1]=$(printf '{"tokens_per_second":%s,"bytes_read":%d,"resident_bytes":%d,"felt_wait_s":%s,"hits":%d,"misses":%d,"joins":%d}' \
		"$tokens_per_second" "$bytes_read" "$resident_bytes" "$felt_wait_s" "$hits" "$misses" "$joins")
}

generate()
{
	progress "making a checkpoint: olmoe, $layers layers of $experts experts, top $top_k"
	make_checkpoint --layers $layers --experts $experts --top-k $top_k --hidden $hidden --intermediate $intermediate \
		--vocab 512 --seed 1 --popularity olmoe --expert-format bf16 || give_up
	budget_bytes=$((checkpoint_bytes / 3 * 2 >> 20 << 20))
	progress "$(human_bytes "$checkpoint_bytes"); memory for experts in every mode: $(human_bytes $budget_bytes)"
}

# While the engines use the shared cache, their cgroup is charged for their own memory and for pages of dense weights that
# they have read and copied: those the page cache may drop, so they do not count as theirs.
shared_mode()
{
	local grouped=0
	progress "shared: $engine_count engines, one cache of $(human_bytes $budget_bytes) in cnre-managerd"
	start_manager $budget_bytes || give_up
	open_group max && grouped=1
	group_reason=$reason
	run_shared shared $engine_count || give_up
	[ $grouped = 0 ] || own_bytes=$(($(group_peak_bytes) - $(cached_bytes)))
	close_group
	keep cnre 'cnre: one shared cache'
	progress "shared: each prompt again with one engine alone, to compare its tokens"
	one_by_one
	stop_manager || give_up
}

one_by_one()
{
	local i
	for ((i = 0; i < engine_count; i++)); do
		start_engine "alone.$i" "${prompts[i]}" --cache cnre --socket "$socket"
		finish_engines alone || give_up
	done
}

private_mode()
{
	progress "private: $engine_count engines, a cache of $(human_bytes $((budget_bytes / engine_count))) in each"
	run_private private $engine_count $budget_bytes || give_up
	keep private "private: $(human_bytes $((budget_bytes / engine_count))) in each"
}

mapped_mode()
{
	if [ -z "$own_bytes" ]; then
		progress "mmap: left out: $group_reason"
		row[mmap]="mmap: left out, $group_reason"
		json[mmap]=null
		return
	fi
	progress "mmap: $engine_count engines, a cgroup with $(human_bytes $budget_bytes) and the $(human_bytes "$own_bytes") they use themselves"
	run_mapped mapped $engine_count $budget_bytes "$own_bytes" || give_up
	keep mmap 'mmap: the page cache'
}

# Each prompt must give the same tokens with every cache, and with one engine as with three.
compare_tokens()
{
	local i mode expected
	identical_tokens=true
	for ((i = 0; i < engine_count; i++)); do
		expected=$(token_list "$work/alone.$i.json")
		for mode in shared private mapped; do
			[ -e "$work/$mode.$i.json" ] || continue
			[ -n "$expected" ] && [ "$(token_list "$work/$mode.$i.json")" = "$expected" ] || identical_tokens=false
		done
	done
}

print_table()
{
	printf '\n%d engines, %d tokens each; checkpoint %s; %s for experts in every row; caches cold at the start\n\n' \
		$engine_count "$steps" "$(human_bytes "$checkpoint_bytes")" "$(human_bytes $budget_bytes)"
	printf '%-28s %8s %11s %11s %8s %8s %7s %11s\n' '' 'tok/s' 'from disk' 'resident' 'hits' 'misses' 'joins' 'felt wait'
	printf '%s\n' "${row[cnre]}" "${row[private]}" "${row[mmap]}"
	printf '\ntokens are identical in every mode and with one engine: %s\n' $identical_tokens
}

write_report()
{
	mkdir -p "$build/demo"
	printf '{"engines":%d,"budget_bytes":%d,"checkpoint_bytes":%d,"modes":{"cnre":%s,"private":%s,"mmap":%s},"identical_tokens":%s}\n' \
		$engine_count $budget_bytes "$checkpoint_bytes" "${json[cnre]}" "${json[private]}" "${json[mmap]}" $identical_tokens \
		>"$build/demo/report.json"
	echo "report: $build/demo/report.json"
}

own_bytes=
group_reason=
generate
shared_mode
private_mode
mapped_mode
compare_tokens
print_table
write_report
[ $identical_tokens = true ]
