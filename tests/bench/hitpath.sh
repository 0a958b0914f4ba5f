#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a hit costs: nanoseconds of one acquire and release of a resident expert at random, beside the bare locked pair on
# a ledger and a directory of 20,000 objects (bench_hitpath.c). One thread; two processes; two threads of one client.
#
# PAIRS a measurement (2000000), ROUNDS (5), EXPERTS a layer (313, of 64 layers).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck disable=SC2034 # compare.sh wants it; no engine runs here
steps=1
pairs=${PAIRS:-2000000}
experts=${EXPERTS:-313}
open_bench hitpath

build_program
make_checkpoint --layers 64 --experts "$experts" --top-k 8 --hidden 16 --intermediate 16 --vocab 64 --seed 1 || give_up "$reason"
start_manager "$((64 * experts * 16384 + (64 << 20)))" || give_up "$reason" # a slab is three pages at least

for ((round = 0; round < rounds; round++)); do
	answer=$("$program" "$socket" "$checkpoint" "$pairs") || give_up 'bench_hitpath failed'
	for name in bare_ns pair_ns bare_2proc_ns pair_2proc_ns pair_2thread_ns; do
		note $name "$(number $name <<<"$answer")"
	done
done

# System calls of a whole run, by number of pairs. Five times a million pairs add none; the joins and waits around them
# differ by a few from run to run.
count_calls() # pairs
{
	strace -f -c -U calls,name -o "$work/calls" "$program" "$socket" "$checkpoint" "$1" >/dev/null &&
		awk '$2 == "total" {print $1}' "$work/calls"
}
if command -v strace >/dev/null; then
	few=$(count_calls 1) && many=$(count_calls 1000000) || give_up 'strace failed'
	note system_calls_in_a_million_pairs $((many - few))
	echo "system calls that a million pairs add to the $few of the run around them: $((many - few))"
fi

printf '%d experts, %d pairs a measurement\n' "$(number objects <<<"$answer")" "$pairs"
printf '%-40s %s ns\n' 'bare locked pair' "$(show_spread bare_ns 1)" 'acquire and release' "$(show_spread pair_ns 1)" \
	'bare, two processes' "$(show_spread bare_2proc_ns 1)" 'library, two processes' "$(show_spread pair_2proc_ns 1)" \
	'library, two threads of one client' "$(show_spread pair_2thread_ns 1)"
write_results
