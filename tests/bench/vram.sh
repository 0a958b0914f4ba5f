#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a hit in VRAM costs a client beside one in memory (bench_vram.c), with a manager that serves 256 MiB of this machine's first
# GPU. Skips with 77 and a reason where there is none. Latencies of calls, in microseconds.
#
# CALLS a measurement (20000), ROUNDS (3).
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck disable=SC2034 # compare.sh wants it; no engine runs here
steps=1
open_bench vram
skip() # reason
{
	echo "vram: skipped: $1"
	exit 77
}

build_program
make_checkpoint --layers 8 --experts 32 --top-k 8 --hidden 512 --intermediate 512 --vocab 64 --seed 1 || give_up "$reason"
start_manager 512M --vram 256M || skip "$reason"
for ((round = 0; round < rounds; round++)); do
	answer=$("$program" "$socket" "$checkpoint" "${CALLS:-20000}" 2>"$work/error")
	status=$?
	[ $status != 77 ] || skip "$(tail -n 1 "$work/error")"
	[ $status = 0 ] || give_up "bench_vram failed: $(tail -n 1 "$work/error")"
	for name in memory vram vram_on_stream; do
		read -r half most < <(sed -nE "s/.*\"${name}_us\": \[([0-9.]+), ([0-9.]+)\].*/\1 \2/p" <<<"$answer")
		note ${name}_p50_us "$half"
		note ${name}_p99_us "$most"
	done
done
for name in memory vram vram_on_stream; do
	echo "$name: p50 $(show_spread ${name}_p50_us 2) us, p99 $(show_spread ${name}_p99_us 2) us"
done
write_results
