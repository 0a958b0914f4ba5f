#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a cold miss costs beyond its read: one cnre_acquire of an expert that is not resident, less plain O_DIRECT reads of
# the same bytes just before or after it; the median of these differences (bench_coldmiss.c). The cache is emptied each
# round. Less than 0 means that the manager's chunks, read side by side, were faster than one pread.
#
# SAMPLES a round (200), ROUNDS (5).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
steps=1
samples=${SAMPLES:-200}
open_bench coldmiss

build_program
make_checkpoint --layers 8 --experts 32 --top-k 8 --hidden 768 --intermediate 512 --vocab 512 --seed 1 --expert-format bf16 || give_up "$reason"
start_manager "$((checkpoint_bytes + checkpoint_bytes / 4))" || give_up "$reason"

for ((round = 0; round < rounds; round++)); do
	"$build/cnrectl" --socket "$socket" reset >/dev/null || give_up 'cnrectl reset failed'
	answer=$("$program" "$socket" "$checkpoint" "$samples" $((round + 1))) || give_up 'bench_coldmiss failed'
	for name in raw_us raw_p90_us acquire_us acquire_p90_us added_us added_p90_us; do
		note $name "$(number $name <<<"$answer")"
	done
done

printf 'experts of %d bytes, %d samples a round\n' "$(number expert_bytes <<<"$answer")" "$samples"
printf '%-32s %s us\n' 'O_DIRECT pread, median' "$(show_spread raw_us 0)" 'pread, 90th percentile' "$(show_spread raw_p90_us 0)" \
	'cold acquire, median' "$(show_spread acquire_us 0)" 'acquire, 90th percentile' "$(show_spread acquire_p90_us 0)" \
	'added by the manager, median' "$(show_spread added_us 0)" 'added, 90th percentile' "$(show_spread added_p90_us 0)"
write_results
