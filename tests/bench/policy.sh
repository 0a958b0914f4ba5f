#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Policies end to end: engines replay routing traces against a real manager and real reads, once with --policy lru, once
# with cost, and once with cost and the history of other sessions (--usage), where a trace has any; for 10 and 25 % of the
# experts, three engines and one. Every run begins with an empty cache; its first WARM_UP tokens are not counted. Arms run in
# turn, forwards in one round and backwards in the next, and a ratio is of two arms of one round.
#
# The memory is exactly so many slabs: --ram is percent * experts / 100 slabs. Reservations take nothing of it: they bound
# what an engine may hold at once, here two rows (bench_policy.c). Reads are O_DIRECT, and the checkpoint was read once
# before, so that whatever lies below a virtual drive has it.
#
# Traces: that of Qwen3-30B in CNRE_TRACES (../shared/traces), if it is there; sessions that cnre-sim (SIM, build/cnre-sim)
# makes by the presets in PRESETS (glm_a hot), if it is there. Or TRACES: files of one model, and TRAIN: sessions for the
# history. LAYERS EXPERTS TOP_K must be theirs. 1.2 GiB are written below TMPDIR, and removed.
#
# ROUNDS (4), WARM_UP (32) and TOKENS (96) of each engine, COMPUTE_US (100) a layer, busy; ENGINES (3 1), BUDGETS (10 25), HUGEPAGES (4k).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-4}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
steps=1
warm_up=${WARM_UP:-32} tokens=${TOKENS:-96} compute_us=${COMPUTE_US:-100}
layers=${LAYERS:-48} experts=${EXPERTS:-128} top_k=${TOP_K:-6}
sim=${SIM:-$build/cnre-sim}
qwen=${CNRE_TRACES:-../shared/traces}/qwen3-30b.route.csv
measured=(felt_wait_s felt_us_per_load misses loads_per_token bytes_read p50_ms p99_ms tokens_per_second)
open_bench policy

# ---- one run ----

# Sets answer. Arms: lru, cost, usage, which is cost with a copy of the history: the manager adds to what it is given.
replay() # arm percent engines warm-up tokens compute traces...
{
	local arguments=(--policy cost --hugepages "${HUGEPAGES:-4k}")
	case $1 in
	lru) arguments[1]=lru ;;
	usage)
		rm -rf "$work/usage"
		cp -r "$work/history" "$work/usage"
		arguments+=(--usage "$work/usage")
		;;
	train) arguments+=(--usage "$work/history") ;;
	esac
	start_manager $((objects * $2 / 100 * slab_bytes)) "${arguments[@]}" || give_up "$reason"
	answer=$(timeout "$run_timeout" "$program" "$build/cnrectl" "$socket" "$checkpoint" "${@:3}") || give_up "bench_policy $1 failed"
	stop_manager || give_up "$reason"
}

value() { number "$1" <<<"$answer"; }

note_run() # key arm
{
	local name loads
	loads=$(value loads)
	for name in felt_wait_s misses bytes_read p50_ms p99_ms joins resident_objects log_lost; do
		declare -g "now_$2_$name=$(value $name)"
	done
	declare -g "now_$2_felt_us_per_load=$(calculate "$loads > 0 ? $(value felt_wait_s) * 1e6 / $loads : 0")"
	declare -g "now_$2_loads_per_token=$(calculate "$loads / $(value tokens)")"
	declare -g "now_$2_tokens_per_second=$(calculate "$(value tokens) / $(value wall_s)")"
	for name in "${measured[@]}" joins resident_objects log_lost; do
		local now=now_$2_$name
		note "$1_$2_$name" "${!now}"
	done
}

note_ratios() # key
{
	local arm name ours theirs
	for arm in "${arms[@]:1}"; do
		for name in "${measured[@]}"; do
			ours=now_${arm}_$name theirs=now_lru_$name
			note "$1_${arm}_over_lru_$name" "$(calculate "${!theirs} > 0 ? ${!ours} / ${!theirs} : 1")"
		done
	done
}

# ---- one cell: so many engines, so much memory ----

show_row() # key label name decimals unit
{
	local arm
	printf '%-18s %-24s' "$2" "$(show_spread "$1_lru_$3" "$4" "$5")"
	for arm in "${arms[@]:1}"; do
		printf ' %-24s %-18s' "$(show_spread "$1_${arm}_$3" "$4" "$5")" "$(show_spread "$1_${arm}_over_lru_$3" 2)"
	done
	printf '\n'
}

show_cell() # key title
{
	local arm
	printf '\n%s\n%-18s %-24s' "$2" '' lru
	for arm in "${arms[@]:1}"; do
		printf ' %-24s %-18s' "${arm/usage/cost with history}" 'divided by lru'
	done
	printf '\n'
	show_row "$1" 'felt wait, s' felt_wait_s 2 1
	show_row "$1" 'felt us a load' felt_us_per_load 0 1
	show_row "$1" 'misses' misses 0 1
	show_row "$1" 'loads a token' loads_per_token 1 1
	show_row "$1" 'read, MiB' bytes_read 0 1048576
	show_row "$1" 'token p50, ms' p50_ms 1 1
	show_row "$1" 'token p99, ms' p99_ms 1 1
	show_row "$1" 'tokens a second' tokens_per_second 1 1
}

measure() # set percent engines traces...
{
	local key=$1_e$3_b$2 order arm round
	for ((round = 0; round < rounds; round++)); do
		order=("${arms[@]}")
		[ $((round % 2)) = 0 ] || mapfile -t order < <(printf '%s\n' "${arms[@]}" | tac)
		for arm in "${order[@]}"; do
			replay "$arm" "$2" "$3" "$warm_up" "$tokens" "$compute_us" "${@:4}"
			note_run "$key" "$arm"
		done
		note_ratios "$key"
	done
	show_cell "$key" "$1, $3 engine(s), $2 % of the experts ($(median_of "${key}_lru_resident_objects") resident): $((tokens * $3)) tokens"
}

measure_set() # set; reads traces and train
{
	local percent count
	arms=(lru cost)
	if [ ${#train[@]} -gt 0 ]; then
		arms+=(usage)
		rm -rf "$work/history"
		mkdir "$work/history"
		replay train 25 ${#train[@]} 0 $((warm_up + tokens)) 0 "${train[@]}"
	fi
	for percent in ${BUDGETS:-10 25}; do
		for count in ${ENGINES:-3 1}; do
			measure "$1" "$percent" "$count" "${traces[@]}"
		done
	done
}

# ---- traces ----

generate() # preset; sets traces and train
{
	"$sim" generate --preset "$1" --out "$work/$1" --to group --layers "$layers" --experts "$experts" --top-k "$top_k" \
		--tokens $((warm_up + tokens)) --train-sessions 5 --eval-sessions 3 --seed 1 >"$work/sim.log" 2>&1 ||
		give_up "cnre-sim: $(last_line "$work/sim.log")"
	traces=("$work/$1"/eval_*.grp)
	train=("$work/$1"/train_*.grp)
}

build_program
[ "$(df --output=avail -k "$work" | tail -n 1)" -gt 3145728 ] || give_up "less than 3 GiB are free in $work: choose another TMPDIR"
make_checkpoint --layers "$layers" --experts "$experts" --top-k "$top_k" --hidden 256 --intermediate 256 --vocab 512 --seed 1 ||
	give_up "$reason"
slabs=$("$program" slabs "$checkpoint") || give_up 'bench_policy slabs failed'
objects=$(number objects <<<"$slabs") slab_bytes=$(number slab_bytes <<<"$slabs")
for shard in "$checkpoint"/*.safetensors; do
	dd if="$shard" of=/dev/null bs=4M iflag=direct status=none || give_up 'no O_DIRECT here: the page cache would take part'
done
printf '%d experts of %d bytes; %d + %d tokens an engine, %d us of computation a layer\n' "$objects" "$slab_bytes" "$warm_up" \
	"$tokens" "$compute_us"

if [ -n "${TRACES:-}" ]; then
	read -ra traces <<<"$TRACES"
	read -ra train <<<"${TRAIN:-}"
	measure_set given
else
	sets=0
	train=() traces=("$qwen")
	if [ -e "$qwen" ]; then
		measure_set qwen3
		sets=$((sets + 1))
	fi
	if [ -x "$sim" ]; then
		for preset in ${PRESETS-glm_a hot}; do
			generate "$preset"
			measure_set "$preset"
			sets=$((sets + 1))
		done
	fi
	[ $sets -gt 0 ] || give_up 'no trace: set TRACES, or CNRE_TRACES, or build cnre-sim'
fi
echo
write_results
