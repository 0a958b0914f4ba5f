#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs engines side by side on one generated checkpoint, with the shared cache, with a private one each, or on mmap, and
# adds up what that cost. A library for demo.sh and for the benchmarks: it prints nothing, and returns 1 with the reason
# in $reason. Needs nothing but the programs of the build and coreutils.
#
# The caller sets: build (folder of the programs), work (its own temporary folder, removed by the caller), steps.
# After run_engines the result stands in: tokens_per_second bytes_read resident_bytes felt_wait_s hits misses joins.
# Call compare_close before the end, however it comes.

# shellcheck disable=SC2034 # results are read by the caller

: "${build:?}" "${work:?}" "${steps:?}"
reason=
manager=                 # process id; empty: none runs
engines=()               # process ids
group=                   # memory cgroup that new engines enter; empty: none
socket=$work/managerd.sock
checkpoint=$work/checkpoint
tool_timeout=20          # seconds for the manager to end
ready_timeout=90         # seconds for the manager to be ready: memory touched for the first time can be slow
run_timeout=${RUN_TIMEOUT:-240} # seconds for engines that run at once

fail() { reason=$1; return 1; }
last_line() { tail -n 1 "$1" 2>/dev/null; }

# The number behind "NAME": in a JSON line on standard input.
number() { sed -n 's/.*"'"$1"'": *\(-\{0,1\}[0-9][0-9.eE+-]*\).*/\1/p'; }
token_list() { sed -n 's/.*"tokens": *\[\([^]]*\)\].*/\1/p' "$1" | tr -d ' '; }
# Arithmetic with fractions.
calculate() { awk "BEGIN {printf \"%.6g\", ($1)}"; }

# ---- checkpoint ----

make_checkpoint() # arguments of cnre-gen
{
	"$build/cnre-gen" --family olmoe --out "$checkpoint" "$@" >"$work/gen.log" 2>&1 ||
		fail "cnre-gen: $(last_line "$work/gen.log")" || return
	sync "$checkpoint"/*
	checkpoint_bytes=$(cat "$checkpoint"/*.safetensors | wc -c)
	drop_page_cache
}

# Only clean pages that nobody maps can go, so call it when no engine runs.
drop_page_cache()
{
	local file
	for file in "$checkpoint"/*; do
		dd if="$file" of=/dev/null iflag=nocache count=0 status=none
	done
}

cached_bytes() { fincore --bytes --noheadings --output RES "$checkpoint"/*.safetensors | awk '{sum += $1} END {printf "%d", sum}'; }

# ---- manager ----

start_manager() # budget arguments...
{
	local line='' part ready waited=0
	mkfifo "$work/ready" || return
	exec {ready}<>"$work/ready"
	"$build/cnre-managerd" --model "$checkpoint" --ram "$1" --socket "$socket" "${@:2}" >"$work/ready" 2>"$work/managerd.log" &
	manager=$!
	while ! read -r -t 0.5 -u "$ready" part; do # the time may be over in the middle of the line
		line+=$part
		waited=$((waited + 1))
		if [ $waited -ge $((2 * ready_timeout)) ] || ! kill -0 "$manager" 2>/dev/null; then
			break
		fi
	done
	line+=$part
	rm "$work/ready"
	exec {ready}<&-
	case $line in
	ready:*) return 0 ;;
	esac
	fail "cnre-managerd: $(last_line "$work/managerd.log")"
}

stop_manager()
{
	local status
	[ -n "$manager" ] || return 0
	kill "$manager" 2>/dev/null
	timeout $tool_timeout tail --pid="$manager" -f /dev/null || kill -KILL "$manager" 2>/dev/null
	wait "$manager" 2>/dev/null
	status=$?
	manager=
	[ $status = 0 ] || fail "cnre-managerd ended with status $status at SIGTERM: $(last_line "$work/managerd.log")"
}

manager_stats() { "$build/cnrectl" --socket "$socket" stats --json; }

# ---- memory cgroup, version 1 or 2 ----

open_group() # limit in bytes, or max
{
	local parent
	for parent in /sys/fs/cgroup/memory /sys/fs/cgroup; do
		[ -e $parent/cgroup.procs ] || continue
		mkdir "$parent/cnre-$$" 2>/dev/null || { fail "no memory cgroup can be made below $parent (it needs root)"; return; }
		group=$parent/cnre-$$
		if [ "$1" = max ] && [ -n "$(group_peak_bytes)" ]; then
			return 0
		elif { echo "$1" >"$group/memory.limit_in_bytes"; } 2>/dev/null || { echo "$1" >"$group/memory.max"; } 2>/dev/null; then
			return 0
		fi
		close_group
		fail "the memory controller is not on in $parent"
		return
	done
	fail 'no cgroups are mounted at /sys/fs/cgroup'
}

group_peak_bytes() { cat "$group/memory.max_usage_in_bytes" 2>/dev/null || cat "$group/memory.peak" 2>/dev/null; }

close_group()
{
	[ -n "$group" ] || return 0
	{ echo 0 >"$group/memory.force_empty"; } 2>/dev/null
	rmdir "$group" 2>/dev/null
	group=
}

# ---- engines ----

# Different conversations, so that what the engines share is the model's habits and not the text.
prompts=("95 28 14 7 61 3" "11 402 87 219 5 330" "256 17 181 44 390 72" "33 148 501 12 275 66")

start_engine() # name prompt arguments...
{
	(
		[ -z "$group" ] || echo "$BASHPID" >"$group/cgroup.procs" || exit 1
		exec timeout "$run_timeout" "$build/cnre-olmoe" --model "$checkpoint" --tokens "$2" --steps "$steps" --threads "${threads:-1}" --json \
			"${@:3}" >"$work/$1.json" 2>"$work/$1.log"
	) &
	engines+=($!)
}

# Waits for all; the first that fails gives the reason.
finish_engines() # name
{
	local i failed=0
	for i in "${!engines[@]}"; do
		if ! wait "${engines[i]}" && [ $failed = 0 ]; then
			fail "cnre-olmoe: $(last_line "$work/$1.$i.log" | grep . || echo "ended by a signal or after $run_timeout s")"
			failed=1
		fi
	done
	engines=()
	if [ $failed = 1 ] && [ -n "$manager" ] && ! kill -0 "$manager" 2>/dev/null; then
		wait "$manager"
		fail "cnre-managerd ended with status $? under its clients: $(last_line "$work/managerd.log")"
		manager=
	fi
	return $failed
}

# What the engines said, added up. All tokens over the slowest engine's time, not the sum of their rates: an engine that
# is still running after the others have ended has the machine to itself.
add_up() # name count
{
	local i slowest=0 rate
	bytes_read=0 resident_bytes=0 felt_wait_s=0 hits=0 misses=0 joins=0
	for ((i = 0; i < $2; i++)); do
		rate=$(number tokens_per_second <"$work/$1.$i.json")
		[ -n "$rate" ] || { fail "cnre-olmoe: no tokens_per_second in its answer"; return; }
		slowest=$(awk -v a="$slowest" -v b="$rate" 'BEGIN {print a == 0 || b < a ? b : a}')
		felt_wait_s=$(calculate "$felt_wait_s + $(number felt_wait_s <"$work/$1.$i.json")")
		bytes_read=$((bytes_read + $(number bytes_read <"$work/$1.$i.json"))) # empty, so 0, where the kernel does not tell
		resident_bytes=$((resident_bytes + $(number resident_bytes <"$work/$1.$i.json")))
		hits=$((hits + $(number hits <"$work/$1.$i.json")))
		misses=$((misses + $(number misses <"$work/$1.$i.json")))
	done
	tokens_per_second=$(calculate "$2 * $slowest")
}

run_engines() # name count arguments...
{
	local i
	for ((i = 0; i < $2; i++)); do
		start_engine "$1.$i" "${prompts[i]}" "${@:3}"
	done
	finish_engines "$1" && add_up "$1" "$2"
}

# ---- the three kinds of cache; name, number of engines, memory for experts in all ----

# Needs a manager, cold or not. What was read is asked of the manager: it alone knows reads that served several.
run_shared() # name count
{
	local before after
	before=$(manager_stats) || { fail 'cnrectl stats failed'; return; }
	run_engines "$1" "$2" --cache cnre --socket "$socket" || return
	after=$(manager_stats) || { fail 'cnrectl stats failed'; return; }
	bytes_read=$(($(number bytes_read <<<"$after") - $(number bytes_read <<<"$before")))
	joins=$(($(number joins <<<"$after") - $(number joins <<<"$before")))
	resident_bytes=$(number resident_bytes <<<"$after")
}

run_private() # name count bytes
{
	drop_page_cache
	run_engines "$1" "$2" --cache private:$(($3 / $2))
}

# The page cache gets the same memory: the engines live in a cgroup with it and what they use themselves. Each reports the
# one page cache; the least is that of the first to end, after which the others have its memory too.
run_mapped() # name count bytes own-bytes
{
	drop_page_cache
	open_group $(($3 + $4)) || return
	run_engines "$1" "$2" --cache mmap || return
	resident_bytes=$(for ((i = 0; i < $2; i++)); do number resident_bytes <"$work/$1.$i.json"; done | sort -n | head -n 1)
	close_group
	drop_page_cache
}

compare_close()
{
	[ ${#engines[@]} = 0 ] || kill "${engines[@]}" 2>/dev/null
	[ ${#engines[@]} = 0 ] || wait "${engines[@]}" 2>/dev/null
	engines=()
	stop_manager
	close_group
}
