#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the death of one client costs the others: the 99th percentile of every acquire, hits and misses, of two clients
# that hold leases, while a third repeatedly dies with leases held; while it leaves properly instead, which costs the same
# processes, attaches and loads; and while there is none. The ratio that matters is dying over leaving.
#
# SECONDS_EACH (3), ROUNDS (5).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
steps=1
seconds=${SECONDS_EACH:-3}
open_bench death

build_program
make_checkpoint --layers 8 --experts 32 --top-k 8 --hidden 384 --intermediate 256 --vocab 512 --seed 1 --expert-format bf16 || give_up "$reason"
# Seven tenths of the experts: about a third of the acquires at random are misses.
start_manager "$((8 * 32 * 3 * 384 * 256 * 2 * 7 / 10))" || give_up "$reason"

for ((round = 0; round < rounds; round++)); do
	for kind in quiet leave die; do
		answer=$(timeout 60 "$program" "$socket" "$checkpoint" $kind "$seconds" $((round + 1))) || give_up "bench_death $kind failed"
		for name in p50_us p99_us p999_us longest_us thirds; do
			note ${kind}_$name "$(number $name <<<"$answer")"
		done
		declare "p99_$kind=$(number p99_us <<<"$answer")"
	done
	note die_over_leave_p99 "$(calculate "$p99_die / $p99_leave")"
	note die_over_quiet_p99 "$(calculate "$p99_die / $p99_quiet")"
done

for kind in quiet leave die; do
	printf '%-6s p50 %s  p99 %s  p99.9 %s us, %s thirds\n' $kind "$(show_spread ${kind}_p50_us 1)" "$(show_spread ${kind}_p99_us 1)" \
		"$(show_spread ${kind}_p999_us 0)" "$(median_of ${kind}_thirds)"
done
printf '%-30s %s\n' 'p99 dying / leaving' "$(show_spread die_over_leave_p99 2)" 'p99 dying / nobody' "$(show_spread die_over_quiet_p99 2)"
write_results
