#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One shared cache against private ones of the same total, for 1 to 4 engines and memory for 25 to 100 % of the experts:
# tokens a second, bytes from disk, hits, misses, and shared misses over private misses. Caches are cold at each start.
#
# STEPS tokens an engine (24), ROUNDS (1), ENGINES and BUDGETS (percent) as lists.
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-1}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
steps=${STEPS:-24}
open_bench sharing

measure() # kind engines percent
{
	local key=$1_e$2_b$3
	case $1 in
	shared)
		"$build/cnrectl" --socket "$socket" reset >/dev/null || give_up 'cnrectl reset failed'
		run_shared "$key" "$2"
		;;
	private) run_private "$key" "$2" $((experts_bytes * $3 / 100)) ;;
	esac || give_up "$reason"
	note "${key}_tokens_per_second" "$tokens_per_second"
	note "${key}_bytes_read" "$bytes_read"
	note "${key}_hits" "$hits"
	note "${key}_misses" "$misses"
}

# 512 experts of 768 KiB: 384 MiB, so that 16 cells fit three minutes.
make_checkpoint --layers 8 --experts 64 --top-k 8 --hidden 512 --intermediate 256 --vocab 512 --seed 1 --popularity olmoe \
	--expert-format bf16 ||
	give_up "$reason"
experts_bytes=$((8 * 64 * 3 * 512 * 256 * 2))

printf '%7s %7s  %-24s %-24s %11s %11s %9s\n' engines memory 'shared tok/s' 'private tok/s' 'shared read' 'private' 'misses'
for percent in ${BUDGETS:-25 50 75 100}; do
	start_manager $((experts_bytes * percent / 100)) || give_up "$reason"
	for count in ${ENGINES:-1 2 3 4}; do
		for ((round = 0; round < rounds; round++)); do
			measure shared "$count" "$percent"
			shared_misses=$misses
			measure private "$count" "$percent"
			note "misses_ratio_e${count}_b$percent" "$(calculate "$misses > 0 ? $shared_misses / $misses : 1")"
		done
		key=e${count}_b$percent
		printf '%7d %6d%%  %-24s %-24s %7.0f MiB %7.0f MiB %9s\n' "$count" "$percent" \
			"$(show_spread "shared_${key}_tokens_per_second" 2)" "$(show_spread "private_${key}_tokens_per_second" 2)" \
			"$(calculate "$(median_of "shared_${key}_bytes_read") / 1048576")" \
			"$(calculate "$(median_of "private_${key}_bytes_read") / 1048576")" "$(calculate "$(median_of "misses_ratio_$key")")"
	done
	stop_manager
done
echo 'misses: shared divided by private'
write_results
