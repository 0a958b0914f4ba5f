#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a hit costs an engine: tokens a second with every expert resident in the manager, against mmap with every expert
# in the page cache, in turn. The ratio is what CNRE keeps of the speed of plain memory.
#
# STEPS tokens a run (64), ROUNDS (5).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
steps=${STEPS:-64}
threads=${THREADS:-$(nproc)}
open_bench resident

make_checkpoint --layers 8 --experts 32 --top-k 8 --hidden 768 --intermediate 512 --vocab 512 --seed 1 --expert-format bf16 || give_up "$reason"
start_manager "$((checkpoint_bytes + checkpoint_bytes / 4))" || give_up "$reason"

# Each way once before the rounds, so that neither reads in them: every expert is touched, by bytes and not by chance.
cat "$checkpoint"/*.safetensors >/dev/null
run_shared warm 1 || give_up "$reason"
for ((round = 0; round < rounds; round++)); do
	run_shared "cnre.$round" 1 || give_up "$reason"
	shared_rate=$tokens_per_second
	note cnre_tokens_per_second "$tokens_per_second"
	note cnre_misses "$misses"
	cat "$checkpoint"/*.safetensors >/dev/null # the kernel may have dropped some of it meanwhile
	run_engines "mmap.$round" 1 --cache mmap || give_up "$reason"
	note mmap_tokens_per_second "$tokens_per_second"
	note mmap_bytes_read "$bytes_read"
	note cnre_over_mmap "$(calculate "$shared_rate / $tokens_per_second")"
done

printf '%-24s %s\n' 'cnre tok/s' "$(show_spread cnre_tokens_per_second 2)" 'mmap tok/s' "$(show_spread mmap_tokens_per_second 2)" \
	'cnre / mmap' "$(show_spread cnre_over_mmap 3)" 'cnre misses in a run' "$(show_spread cnre_misses 0)"
write_results
