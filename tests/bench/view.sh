#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the view rows16 is to a kernel: an expert of OLMoE's size, one thread, in either layout in turn (bench_view.c);
# ratios are view / rows of one round. Processor time, so that others on the machine count less; instructions by callgrind,
# which knows no AVX-512. And what making the layout costs, once an expert.
#
# ROUNDS (5).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck disable=SC2034 # compare.sh wants it; no engine runs here
steps=1
open_bench view
build_program
kernels=()

take() # kernel heat; of `answer`
{
	local rows view
	rows=$(number "$1_$2_rows_ns" <<<"$answer") view=$(number "$1_$2_view_ns" <<<"$answer")
	note "$1_$2_rows_ns" "$rows"
	note "$1_$2_view_ns" "$view"
	note "$1_$2_ratio" "$(calculate "$view / $rows")"
}

for ((round = 0; round < rounds; round++)); do
	answer=$("$program" measure) || give_up 'bench_view failed'
	mapfile -t kernels < <(grep -o '"[a-z0-9]*_hot_rows_ns"' <<<"$answer" | sed 's/"\(.*\)_hot_rows_ns"/\1/')
	for kernel in "${kernels[@]}"; do
		take "$kernel" hot
		take "$kernel" cold
	done
	note prepare_ns "$(number prepare_ns <<<"$answer")"
done

count_instructions() # kernel layout
{
	valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=products "$program" count "$1" "$2" 2>&1 |
		sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

printf '%-8s %-26s %-26s %-20s %-26s %-26s %s\n' kernel 'rows hot, us' 'view hot, us' 'view / rows' 'rows cold, us' 'view cold, us' 'view / rows'
for kernel in "${kernels[@]}"; do
	printf '%-8s %-26s %-26s %-20s %-26s %-26s %s\n' "$kernel" "$(show_spread "${kernel}_hot_rows_ns" 0 1000)" \
		"$(show_spread "${kernel}_hot_view_ns" 0 1000)" "$(show_spread "${kernel}_hot_ratio" 2)" \
		"$(show_spread "${kernel}_cold_rows_ns" 0 1000)" "$(show_spread "${kernel}_cold_view_ns" 0 1000)" \
		"$(show_spread "${kernel}_cold_ratio" 2)"
done
printf 'preparing one: %s us\n' "$(show_spread prepare_ns 0 1000)"
if command -v valgrind >/dev/null; then
	for kernel in "${kernels[@]}"; do
		[ "$kernel" != avx512 ] || continue
		rows=$(count_instructions "$kernel" rows) view=$(count_instructions "$kernel" view)
		[ -n "$rows" ] && [ -n "$view" ] || give_up 'callgrind failed'
		note "${kernel}_instructions_rows" "$rows"
		note "${kernel}_instructions_view" "$view"
		printf 'instructions of an expert, %s: %d in rows, %d in the view: %s\n' "$kernel" "$rows" "$view" "$(calculate "$view / $rows")"
	done
fi
write_results
