#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What probes cost where nothing is read: engines whose experts are all resident, in turn
#   none    of a build without probes (-DCNRE_NO_PROBES)
#   off     with probes that nobody is attached to
#   on      with bpftrace at all but lease_taken and lease_released, counting each
#   leases  at those two as well, which every hit passes
# and the same of bench_hitpath's pairs, where there is nothing but hits. Clock and processor time of each run; each ratio is of
# two neighbouring runs, one of them without probes, and of the fastest runs: where other work runs, that is nearer to the truth.
# What nobody attached costs is smaller than any of that; with valgrind it is counted in instructions.
#
# STEPS tokens a run (32), ROUNDS (10), PAIRS of the hit path (20000).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-10}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
steps=${STEPS:-32}
pairs=${PAIRS:-20000}
open_bench probes
command -v bpftrace >/dev/null || give_up 'no bpftrace: apt-get install --no-install-recommends bpftrace'
bpftrace -q -e 'BEGIN { exit(); }' >"$work/bpftrace.log" 2>&1 </dev/null || give_up "bpftrace does not run here: $(tail -n 1 "$work/bpftrace.log")"

with=$build without=$build/no-probes
for folder in "$with" "$without"; do
	flags=${CPPFLAGS-}
	[ "$folder" = "$with" ] || flags="$flags -DCNRE_NO_PROBES"
	"${MAKE:-make}" -s --no-print-directory BUILD="$folder" CPPFLAGS="$flags" "$folder/cnre-managerd" "$folder/cnre-olmoe" "$folder/bench-bin/bench_hitpath" >"$work/make.log" 2>&1 ||
		give_up "$folder does not build: $(tail -n 1 "$work/make.log")"
done

# ---- a manager of each build, both with everything resident ----

make_checkpoint --layers 8 --experts 32 --top-k 8 --hidden 768 --intermediate 512 --vocab 512 --seed 1 --expert-format bf16 || give_up "$reason"
declare -A manager_of=([none]='' [off]='')
socket_of() { [ "$1" = none ] && echo "$work/none.sock" || echo "$work/off.sock"; } # way
build_of() { [ "$1" = none ] && echo "$without" || echo "$with"; }
tracer=''
close_probes()
{
	stop_tracer
	for way in none off; do
		manager=${manager_of[$way]}
		stop_manager
	done
	close_bench
}
trap close_probes EXIT
for way in none off; do
	build=$(build_of $way) socket=$(socket_of $way)
	start_manager "$((checkpoint_bytes + checkpoint_bytes / 4))" || give_up "$reason"
	manager_of[$way]=$manager manager=''
done

# ---- the tracer ----

stop_tracer()
{
	[ -n "$tracer" ] || return 0
	kill -INT "$(tr ' ' '\n' <"/proc/$tracer/task/$tracer/children" | head -n 1)" 2>/dev/null
	wait "$tracer" 2>/dev/null
	tracer=''
}
is_attached() { grep -q '^begun' "$work/tracer.out"; }
attach() # names that it leaves out: a regular expression
{
	local file
	for file in "$(realpath "$with/cnre-managerd")" "$(realpath "$with/libcnre.so")"; do
		readelf -n "$file" | awk '/Provider:/ {ours = $2 == "cnre"} /Name:/ && ours {print $2}' | sort -u | grep -vE "$1" |
			sed "s|.*|usdt:$file:cnre:& { @count[\"&\"] = count(); }|"
	done >"$work/script"
	echo 'interval:ms:100 { if (!@begun) { printf("begun\n"); @begun = 1; } } END { clear(@begun); }' >>"$work/script"
	: >"$work/tracer.out"
	timeout 300 bpftrace -B line -q "$work/script" >"$work/tracer.out" 2>"$work/bpftrace.log" </dev/null &
	tracer=$!
	for ((wait = 0; wait < 300; wait++)); do
		is_attached && return
		sleep 0.1
	done
	give_up "bpftrace cannot attach: $(tail -n 1 "$work/bpftrace.log")"
}

# ---- one run of each way ----

# Processor time of an engine: user and system, by bash, in milliseconds.
TIMEFORMAT='%U %S'
run() # way [warm]
{
	local times before
	socket=$(socket_of "$1")
	times=$({ time timeout 300 "$(build_of "$1")/cnre-olmoe" --model "$checkpoint" --socket "$socket" --tokens "${prompts[0]}" --steps "$steps" \
		--threads 1 --cache cnre --json >"$work/$1.json" 2>"$work/$1.log"; } 2>&1) || give_up "cnre-olmoe: $(last_line "$work/$1.log")"
	milliseconds=$(awk '{printf "%d", ($1 + $2) * 1000}' <<<"$times")
	rate=$(number tokens_per_second <"$work/$1.json")
	missed=$(number misses <"$work/$1.json")
	[ "$missed" = 0 ] || [ "${2-}" = warm ] || give_up "$1: $missed misses in a run with everything resident"
	[ -z "${2-}" ] || return 0
	pair_ns=$("$(build_of "$1")/bench-bin/bench_hitpath" "$socket" "$checkpoint" "$pairs" | number pair_ns) || give_up 'bench_hitpath failed'
}

for way in none off; do
	run $way warm
done
declare -A rate_of cpu_of pair_of
measure() # way
{
	run "$1"
	rate_of[$1]=$rate cpu_of[$1]=$milliseconds pair_of[$1]=$pair_ns
	note "tokens_per_second_$1" "$rate"
	note "cpu_ms_$1" "$milliseconds"
	note "pair_ns_$1" "$pair_ns"
}
# A way and the build without probes, one right after the other, who is first by turns. The tracer watches the files of one
# build only, so it stays for all rounds of its way.
compare() # way
{
	if [ $((round % 2)) = 0 ]; then measure none && measure "$1"; else measure "$1" && measure none; fi
	note "time_ratio_$1" "$(calculate "${rate_of[none]} / ${rate_of[$1]}")"
	note "cpu_ratio_$1" "$(calculate "${cpu_of[$1]} / ${cpu_of[none]}")"
	note "pair_ratio_$1" "$(calculate "${pair_of[$1]} / ${pair_of[none]}")"
}
for way in off on leases; do
	case $way in
	on) attach '^lease_(taken|released)$' ;;
	leases) attach '^$' ;;
	esac
	for ((round = 0; round < rounds; round++)); do
		compare $way
	done
	stop_tracer
done
ways=(none off on leases)

fastest() { spread_of "$1" | cut -d ' ' -f 2; } # name
for way in off on leases; do
	note "cpu_ratio_fastest_$way" "$(calculate "$(fastest "cpu_ms_$way") / $(fastest cpu_ms_none)")"
	note "pair_ratio_fastest_$way" "$(calculate "$(fastest "pair_ns_$way") / $(fastest pair_ns_none)")"
done
# The same by what an event costs, which differs less: each hit has two.
event_ns=$(calculate "($(fastest pair_ns_leases) - $(fastest pair_ns_none)) / 2")
events=$((2 * $(number hits <"$work/leases.json")))
note event_ns "$event_ns"
note share_of_lease_events "$(calculate "$events * $event_ns / 1e6 / $(fastest cpu_ms_none)")"
echo "lease events: $events in a run, $event_ns ns each: $(show_spread share_of_lease_events 4) of its processor time"

# Instructions of an engine from its start to its end, in $collected.
instructions() # way
{
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$(build_of "$1")/cnre-olmoe" --model "$checkpoint" --socket "$(socket_of "$1")" \
		--tokens "${prompts[0]}" --steps "$steps" --threads 1 --cache cnre --json >"$work/valgrind.json" 2>"$work/valgrind.log" ||
		give_up "cnre-olmoe under valgrind: $(last_line "$work/valgrind.log")"
	collected=$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$work/valgrind.log")
}
if command -v valgrind >/dev/null; then
	for ((round = 0; round < 3; round++)); do
		instructions none
		collected_without=$collected
		instructions off
		note instructions_ratio_off "$(calculate "$collected / $collected_without")"
	done
	echo "instructions of an engine, off ÷ none: $(show_spread instructions_ratio_off 5)"
fi

# System calls that a million hits add, with nobody attached.
if command -v strace >/dev/null; then
	calls() { strace -f -c -U calls,name -o "$work/calls" "$with/bench-bin/bench_hitpath" "$(socket_of off)" "$checkpoint" "$1" >/dev/null && awk '$2 == "total" {print $1}' "$work/calls"; }
	few=$(calls 1) && many=$(calls 1000000) || give_up 'strace failed'
	note system_calls_in_a_million_pairs $((many - few))
	echo "system calls that a million pairs add to the $few of the run around them: $((many - few))"
fi

printf '%-10s %-28s %-28s %-28s\n' '' 'tokens a second' 'processor time, ms' 'a pair, ns'
for way in "${ways[@]}"; do
	printf '%-10s %-28s %-28s %-28s\n' $way "$(show_spread "tokens_per_second_$way" 1)" "$(show_spread "cpu_ms_$way" 0)" "$(show_spread "pair_ns_$way" 1)"
done
printf '%-10s %-28s %-28s %-28s\n' '÷ none' 'time' 'processor time' 'a pair'
for way in off on leases; do
	printf '%-10s %-28s %-28s %-28s\n' $way "$(show_spread "time_ratio_$way" 4)" "$(show_spread "cpu_ratio_$way" 4)" "$(show_spread "pair_ratio_$way" 4)"
done
printf '%-10s %-28s %-28s %-28s\n' fastest '' "$(for way in off on leases; do show_spread cpu_ratio_fastest_$way 4 | cut -d ' ' -f 1; done | tr '\n' ' ')" \
	"$(for way in off on leases; do show_spread pair_ratio_fastest_$way 4 | cut -d ' ' -f 1; done | tr '\n' ' ')"
write_results
