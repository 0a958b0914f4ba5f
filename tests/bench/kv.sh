#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What KV prefixes are worth and what they cost.
#
#   time to first token   cnre-olmoe, SHARED tokens that another process computed before: from memory, from memory after
#                         SIGKILL of the manager, from files after a cold start (past the page cache), beside computing them
#   nothing in common     all prompts differ: --kv cnre ÷ --kv none, PAIRS pairs in turns; total time, and processor time of
#                         the engine and of the manager; and the least of all runs of the one ÷ the least of the other
#   match                 of BLOCKS resident blocks of 64 tokens, also while the manager is stopped
#   publish               stage, gather, commit until found, beside memcpy of the same bytes by the same thread; the manager's
#                         part of it alone. `cpu` rates are by processor time: what remains on a machine with nothing else to do
#   load                  cold match and every block from files, through the manager, beside fio (depth 8) and kv_disk.sh
#   steps                 of fixed work, a block published every 64 steps, without what the engine gathers itself
#   calls                 system calls: of a match, of a stage and commit, of the manager for a block written or read
#
# PARTS of all that (first apart blocks load calls), ROUNDS (3), PAIRS (4 a round), SHARED (2048), APART (2048 tokens), BLOCKS (64), BLOCK_MIB (12), CHUNKS (15), THREADS of the engine (1).
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
mkdir -p "$build" || exit 1
TMPDIR=$(cd "$build" && pwd) # the files lie on the file system of the build; /tmp may be memory
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck disable=SC2034 # compare.sh wants it
steps=2
parts=${PARTS:-first apart blocks load calls}
pairs=${PAIRS:-4}
shared=${SHARED:-2048}
apart=${APART:-2048}
blocks=${BLOCKS:-64}
block_bytes=$((${BLOCK_MIB:-12} << 20))
chunks=${CHUNKS:-15}
threads=${THREADS:-1}
small_bytes=65536
ram=$((blocks * block_bytes * 4 + (256 << 20))) # one client leases a quarter at most
patience=1200                                   # tenths of a second
open_bench kv
command -v fio >/dev/null || give_up 'fio is missing: apt-get install fio'
build_program
make_checkpoint --layers 8 --experts 16 --top-k 4 --hidden 512 --intermediate 512 --vocab 4096 --heads 8 --seed 1 || give_up "$reason"
prompt_count=0

# ---- prompts: the first `same` tokens are everybody's, the rest nobody else's ----

new_prompt() # same count
{
	prompt_count=$((prompt_count + 1))
	awk -v same="$1" -v count="$2" -v seed="$((prompt_count + $$ * 1000))" 'BEGIN {
		for (i = 0; i < count; i++) {
			if (i == same) srand(seed)
			printf "%d ", i < same ? i * 7919 % 4096 : int(rand() * 4096)
		}
	}' >"$work/prompt"
}

engine() # out arguments...
{
	timeout "$run_timeout" "$build/cnre-olmoe" --model "$checkpoint" --socket "$socket" --tokens "$work/prompt" --steps $steps \
		--threads "$threads" --json "${@:2}" >"$work/$1.json" 2>"$work/engine.log" || give_up "cnre-olmoe: $(last_line "$work/engine.log")"
}
first_token() { number time_to_first_token_s <"$work/$1.json"; }

kv_json() { "$build/cnrectl" --socket "$socket" kv --json || give_up 'cnrectl kv failed'; }
manager_pid() { "$build/cnrectl" --socket "$socket" status --json | number pid; }

# Until a command succeeds.
await() # what command...
{
	local tried=0
	until "${@:2}"; do
		tried=$((tried + 1))
		[ $tried -le $patience ] || give_up "$1: not in time"
		sleep 0.1
	done
}
all_saved()
{
	local now
	now=$(kv_json)
	[ "$(number blocks <<<"$now")" = "$(number disk_blocks <<<"$now")" ]
}
all_scanned() { kv_json | grep -q '"scanned":true'; }
is_incarnation() { [ "$("$build/cnrectl" --socket "$socket" status --json 2>/dev/null | number epoch)" = "$1" ]; }
forget_files() { find "$work/kv" -type f -exec dd if={} of=/dev/null iflag=nocache count=0 status=none \; ; }

open_manager() # arguments...
{
	start_manager 512M "$@" || give_up "$reason"
	new_prompt 0 16
	engine warm --kv none # the experts, so that only prefixes differ
}
close_manager() { stop_manager || give_up "$reason"; }

# ---- time to first token ----

same_prompt() # name
{
	new_prompt "$shared" $((shared + 40))
	engine "$1" --kv cnre
	note "first_$1_s" "$(first_token "$1")"
	[ "$(number matched_tokens <"$work/$1.json")" -ge "$shared" ] || give_up "$1: only $(number matched_tokens <"$work/$1.json") tokens matched"
}

bench_first_token()
{
	rm -rf "$work/kv" && mkdir "$work/kv"
	open_manager --kv-ram 1G --kv-dir "$work/kv" --keeper auto
	new_prompt "$shared" $((shared + 40))
	engine first --kv cnre
	note first_publish_s "$(first_token first)"
	new_prompt "$shared" $((shared + 40))
	engine none --kv none
	note first_none_s "$(first_token none)"
	engine again --kv cnre
	[ "$(token_list "$work/none.json")" = "$(token_list "$work/again.json")" ] || give_up 'other tokens with a shared prefix'
	same_prompt memory
	await 'blocks in files' all_saved
	kill -KILL "$(manager_pid)"
	await 'the manager again' is_incarnation 2
	same_prompt killed
	await 'blocks in files' all_saved
	close_manager
	forget_files
	open_manager --kv-ram 1G --kv-dir "$work/kv" --keeper auto
	await 'files found' all_scanned
	forget_files
	same_prompt files
	close_manager
	for name in memory killed files; do
		note "ratio_first_$name" "$(calculate "$(number time_to_first_token_s <"$work/none.json") / $(first_token $name)")"
	done
}

# ---- nothing in common ----

# Of a process so far, in s; with its threads.
cpu_of() { awk -v hz="$(getconf CLK_TCK)" '{sub(/.*\) /, ""); print ($12 + $13) / hz}' "/proc/$1/stat"; }

run_apart() # none|cnre
{
	local before start end pid
	pid=$(manager_pid)
	before=$(cpu_of "$pid")
	start=$EPOCHREALTIME
	TIMEFORMAT='%U %S'
	{ time engine "apart_$1" --kv "$1"; } 2>"$work/time"
	end=$EPOCHREALTIME
	apart_s=$(calculate "$end - $start")
	apart_cpu_s=$(calculate "$(last_line "$work/time" | tr ' ' '+') + $(cpu_of "$pid") - $before")
}

bench_apart() # pair
{
	local name order='none cnre'
	[ $(($1 % 2)) = 0 ] || order='cnre none'
	new_prompt 0 "$apart"
	for name in $order; do
		run_apart "$name"
		note "apart_${name}_s" "$apart_s"
		note "apart_${name}_cpu_s" "$apart_cpu_s"
		declare "s_$name=$apart_s" "cpu_$name=$apart_cpu_s"
	done
	# shellcheck disable=SC2154 # declared above
	note ratio_apart "$(calculate "$s_cnre / $s_none")"
	# shellcheck disable=SC2154
	note ratio_apart_cpu "$(calculate "$cpu_cnre / $cpu_none")"
}

# ---- blocks, by a client without an engine ----

client() # bytes verb arguments...
{
	answer=$(timeout "$run_timeout" "$program" "$socket" "$checkpoint" "$blocks" "$@") || give_up "bench_kv $2 failed"
}
note_all() # prefix, of $answer
{
	local pair
	for pair in $(tr -d '{}"\n' <<<"$answer" | tr ',' ' '); do
		[ "${pair%%:*}" = bytes ] || note "$1${pair%%:*}" "${pair#*:}"
	done
}

bench_blocks()
{
	local pid
	open_manager --kv-ram $ram --keeper no
	pid=$(manager_pid)
	client $block_bytes match "$pid" 2000 && note_all ''
	client $block_bytes publish "$pid" && note_all publish_
	note ratio_publish "$(calculate "$(number publish_mib <<<"$answer") / $(number memcpy_mib <<<"$answer")")"
	note ratio_manager "$(calculate "$(number manager_mib <<<"$answer") / $(number memcpy_mib <<<"$answer")")"
	note ratio_manager_cpu "$(calculate "$(number manager_cpu_mib <<<"$answer") / $(number memcpy_cpu_mib <<<"$answer")")"
	note ratio_gather_cpu "$(calculate "$(number publish_cpu_mib <<<"$answer") / $(number memcpy_cpu_mib <<<"$answer")")"
	client $block_bytes step "$pid" "$chunks" && note_all step_
	note ratio_step_p99 "$(calculate "$(number beside_us_p99 <<<"$answer") / $(number step_us_p99 <<<"$answer")")"
	note ratio_step_p50 "$(calculate "$(number beside_us_p50 <<<"$answer") / $(number step_us_p50 <<<"$answer")")"
	note ratio_stopped_p99 "$(calculate "$(number stopped_us_p99 <<<"$answer") / $(number step_us_p99 <<<"$answer")")"
	client $small_bytes calls "$pid" 2000 && note_all calls_
	close_manager
}

fio_mib() # read|write
{
	GLIBC_TUNABLES=glibc.malloc.hugetlb=0 fio --name=kv --filename="$work/file" --rw="$1" --ioengine=io_uring --direct=1 --bs=1M \
		--iodepth=8 --size="$((blocks * block_bytes >> 20))M" --fallocate=none --end_fsync=1 --output-format=terse \
		--terse-version=3 2>/dev/null | awk -F ';' '{printf "%.1f", $7 / 1024}'
}

# Every block of the files through a new manager, into memory that is made meanwhile (0) or is there (1).
load_files() # warm
{
	local before after
	forget_files
	start_manager 64M --kv-ram $ram --kv-dir "$work/kv" --keeper no || give_up "$reason"
	await 'files found' all_scanned
	before=$(kv_json)
	client $block_bytes load 1 "$1" && note_all "load${1}_"
	after=$(kv_json)
	[ "$1" = 1 ] || note calls_a_read_block "$(calculate "($(number syscalls <<<"$after") - $(number syscalls <<<"$before")) / ($(number read <<<"$after") - $(number read <<<"$before"))")"
	load_mib=$(number load_mib <<<"$answer")
	close_manager
}

# Which of the two goes first changes with the round: a drive that grants bursts gives more to the first.
bench_load() # round
{
	local after fio_read load_mib warm
	rm -rf "$work/kv" && mkdir "$work/kv"
	start_manager 64M --kv-ram $ram --kv-dir "$work/kv" --keeper no || give_up "$reason"
	client $block_bytes store 1
	await 'blocks in files' all_saved
	after=$(kv_json)
	note calls_a_written_block "$(calculate "$(number syscalls <<<"$after") / $(number written <<<"$after")")"
	close_manager
	rm -f "$work/file"
	fio_mib write >/dev/null
	for warm in 0 1; do
		(($1 % 2 == 1)) || fio_read=$(fio_mib read)
		load_files $warm
		(($1 % 2 == 0)) || fio_read=$(fio_mib read)
		note fio_read_mib "$fio_read"
		note "ratio_load$warm" "$(calculate "$load_mib / $fio_read")"
	done
	rm -rf "$work/kv" "$work/file"
}

# ---- system calls ----

# Without the pauses between looks.
count_calls() # verb pid-argument count
{
	strace -f -c -U calls,name -o "$work/calls" "$program" "$socket" "$checkpoint" 16 $small_bytes "$1" "$2" "$3" >/dev/null &&
		awk '$2 == "total" {sum += $1} $2 == "clock_nanosleep" {sum -= $1} END {print sum}' "$work/calls"
}

bench_calls()
{
	local few many
	command -v strace >/dev/null || return 0
	open_manager --kv-ram 256M --keeper no
	few=$(count_calls match 0 1) && many=$(count_calls match 0 10001) || give_up 'strace failed'
	note calls_in_10000_matches $((many - few))
	few=$(count_calls calls 0 1) && many=$(count_calls calls 0 1001) || give_up 'strace failed'
	note calls_a_publish "$(calculate "($many - $few) / 1000")"
	close_manager
}

# ---- all ----

has() { [[ " $parts " == *" $1 "* ]]; }
for ((round = 0; round < rounds; round++)); do
	! has first || bench_first_token
	if has apart; then
		open_manager --kv-ram 1G --keeper auto
		for ((pair = 0; pair < pairs; pair++)); do
			bench_apart $((round + pair))
		done
		close_manager
	fi
	! has blocks || bench_blocks
	! has load || bench_load $round
done
! has calls || bench_calls

if has apart; then
	for unit in s cpu_s; do
		note "ratio_least_$unit" "$(calculate "$(spread_of "apart_cnre_$unit" | cut -d ' ' -f 2) / $(spread_of "apart_none_$unit" | cut -d ' ' -f 2)")"
	done
fi
line() { printf '%-50s %s\n' "$@"; } # words value
tail_of() { echo "p50 $(show_spread "$1_p50" "$2"), p99 $(show_spread "$1_p99" "$2")"; } # name decimals
printf '%d shared tokens, %d blocks of %d MiB, %d rounds; median (lowest..highest)\n' "$shared" "$blocks" "$((block_bytes >> 20))" "$rounds"
if has first; then
	line 'time to first token, computed' "$(show_spread first_none_s 3) s"
	line '  from memory, another process' "$(show_spread first_memory_s 3) s: $(show_spread ratio_first_memory 1) times less"
	line '  from memory, manager killed' "$(show_spread first_killed_s 3) s: $(show_spread ratio_first_killed 1) times less"
	line '  from files, cold start' "$(show_spread first_files_s 3) s: $(show_spread ratio_first_files 1) times less"
fi
if has apart; then
	line 'nothing in common, --kv cnre / none' "total $(show_spread ratio_apart 4), processor $(show_spread ratio_apart_cpu 4)"
	line '  the least of each' "total $(median_of ratio_least_s), processor $(median_of ratio_least_cpu_s)"
fi
if has blocks; then
	line "match of $blocks blocks" "$(tail_of match_us 1) us"
	line '  manager stopped' "$(tail_of stopped_match_us 1) us"
	line 'memcpy, by the clock and by processor time' "$(show_spread publish_memcpy_mib 0), $(show_spread publish_memcpy_cpu_mib 0) MiB/s"
	line 'publish until found / memcpy' "$(show_spread ratio_publish 2); $(show_spread publish_publish_mib 0) MiB/s"
	line '  where memory must be made' "$(show_spread publish_new_mib 0) MiB/s"
	line '  the manager alone / memcpy' "$(show_spread ratio_manager 2); $(show_spread publish_manager_mib 0) MiB/s"
	line '  by processor time / memcpy' "gather $(show_spread ratio_gather_cpu 2), manager $(show_spread ratio_manager_cpu 2)"
	line 'a step' "$(tail_of step_step_us 0) us"
	line '  a block published every 64, /' "p50 $(show_spread ratio_step_p50 3), p99 $(show_spread ratio_step_p99 3)"
	line '  manager stopped, /' "p99 $(show_spread ratio_stopped_p99 3)"
	line 'in stage and commit of a block' "$(tail_of step_running_both_us 1), max $(show_spread step_running_both_us_max 1) us"
	line '  manager stopped' "$(tail_of step_stopped_both_us 1), max $(show_spread step_stopped_both_us_max 1) us"
	line 'in stage and commit of 64 KiB' "$(tail_of calls_running_both_us 1) us"
	line '  stage, manager stopped, no room' "$(tail_of calls_stopped_stage_us 1) us"
fi
if has load; then
	line 'load of files / fio, memory is there' "$(show_spread ratio_load1 2); $(show_spread load1_load_mib 0) MiB/s, first block $(show_spread load1_load_first_us 0) us"
	line '  memory must be made' "$(show_spread ratio_load0 2); $(show_spread load0_load_mib 0) MiB/s, first block $(show_spread load0_load_first_us 0) us"
	line 'system calls of the manager for a block' "written $(show_spread calls_a_written_block 1), read $(show_spread calls_a_read_block 1)"
fi
if grep -q '^calls_a_publish ' "$work/metrics"; then
	line 'system calls: 10,000 matches; a stage and commit' "$(show_spread calls_in_10000_matches 0); $(show_spread calls_a_publish 2)"
fi
write_results
