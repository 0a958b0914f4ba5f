#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cnre-sim's speed: millions of lookups a second of each policy on one core, with 19,200 and 82,432 objects, a quarter of
# them resident, beside an LRU as a textbook has it (bench_sim.c) in the same round; and a sweep of 8 policies by 8 sizes
# over ten million lookups.
#
# TOKENS a session (4000), ROUNDS (5), SWEEP_SESSIONS of 240 tokens (70: ten million lookups).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck disable=SC2034 # compare.sh wants it; no engine runs here
steps=1
tokens=${TOKENS:-4000}
sessions=${SWEEP_SESSIONS:-70}
policies='lru fifo slru lfu lfru tinylfu cost'
open_bench sim
build_program

generate() # folder preset tokens sessions
{
	"$build/cnre-sim" generate --preset "$2" --out "$work/$1" --train-sessions 0 --eval-sessions "$4" --tokens "$3" \
		--seed 11 >"$work/log" 2>&1 || { cat "$work/log" && give_up 'generate failed'; }
}
generate glm glm_a "$tokens" 1
generate k3 k3 "$tokens" 1
generate sweep glm_a 240 "$sessions"

for ((round = 0; round < rounds; round++)); do
	for preset in glm k3; do
		# shellcheck disable=SC2086 # words
		taskset -c 0 "$program" "$work/$preset"/eval_* $policies >"$work/answer" || give_up 'bench_sim failed'
		while read -r name value; do
			note "${preset}_$name" "$value"
			[ "$name" != textbook ] || textbook=$value
			[ "$name" != objects ] && [ "$name" != lookups ] || continue
			note "${preset}_${name}_ratio" "$(awk -v a="$value" -v b="$textbook" 'BEGIN {print a / b}')"
		done <"$work/answer"
	done
done
began=$(date +%s%N)
"$build/cnre-sim" sweep --trace "$work/sweep" --policy lru,fifo,slru,lfu,lfru,tinylfu,cost,belady \
	--objects 5%,10%,15%,20%,25%,35%,50%,75% --csv >"$work/sweep.csv" || give_up 'sweep failed'
note sweep_s "$(awk -v ns=$(($(date +%s%N) - began)) 'BEGIN {print ns / 1e9}')"

printf '%-12s %-26s %-20s %-26s %-20s\n' 'M lookups/s' 'glm_a, 19,200 objects' '/ textbook' 'k3, 82,432 objects' '/ textbook'
for name in textbook $policies; do
	printf '%-12s %-26s %-20s %-26s %-20s\n' "$name" "$(show_spread "glm_$name" 1)" "$(show_spread "glm_${name}_ratio" 2)" \
		"$(show_spread "k3_$name" 1)" "$(show_spread "k3_${name}_ratio" 2)"
done
echo "sweep of 8 policies by 8 sizes over $(awk -F , 'NR == 2 {printf "%.1f", $4 / 1e6}' "$work/sweep.csv") M lookups: $(show_spread sweep_s 1) s"
write_results
