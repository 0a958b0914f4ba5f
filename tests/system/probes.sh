#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The probes of cnre-probes(7) in a real run: bpftrace attaches to both files before anything runs, and each probe fires as
# often and with what probes_client, the engine and the manager's own counters say. Then it attaches to a manager that runs,
# and goes again by itself and by SIGKILL: the semaphores are 0 as before. What bpftrace cannot show of load_start and
# load_done the kernel's own tracing does. Exit status 0 passed, 1 failed, 77 a program or the privilege is missing.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
skip() { echo "$1"; exit 77; }
for program in cnre-managerd cnrectl cnre-gen cnre-olmoe probes-client; do
	[ -x "$build/$program" ] || skip "$build/$program is not built"
done
command -v bpftrace >/dev/null || skip 'no bpftrace: apt-get install --no-install-recommends bpftrace'
[ "$(id -u)" = 0 ] || skip 'only root may attach probes'

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=8
tracer='' client=''
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
close_test()
{
	[ -z "$tracer" ] || stop_tracer KILL
	[ -z "$client" ] || kill -KILL "$client" 2>/dev/null
	compare_close
	rm -rf "$work"
}
trap close_test EXIT
unset CNRE_SOCKET
export XDG_RUNTIME_DIR=$work/runtime CNRE_CHECK=1
export BPFTRACE_PERF_RB_PAGES=256

failures=0
failed() { echo "FAILED: $1"; failures=$((failures + 1)); }
same() { [ "$2" = "$3" ] || failed "$1: \"$2\", not \"$3\""; } # what found expected
until_true() # tenths-of-a-second command...
{
	local left=$1
	while ! "${@:2}"; do
		left=$((left - 1))
		[ $left -gt 0 ] || return 1
		sleep 0.1
	done
}

child_of() { tr ' ' '\n' <"/proc/$1/task/$1/children" | head -n 1; } # process

# ---- the tracer ----

managerd=$build/cnre-managerd library=$(realpath "$build/libcnre.so")
has_begun() { grep -q '^begun' "$work/events" || ! kill -0 "$tracer" 2>/dev/null; }
start_tracer() # arguments of bpftrace...
{
	: >"$work/events"
	timeout 200 bpftrace -B line -q "$@" >"$work/events" 2>"$work/bpftrace.log" </dev/null &
	tracer=$!
	until_true 600 has_begun && grep -q '^begun' "$work/events"
}
# Not timeout itself, which could not pass SIGKILL on.
stop_tracer() # signal
{
	kill -"$1" "$(child_of "$tracer")" 2>/dev/null
	wait "$tracer" 2>/dev/null
	tracer=
}
# Each line is the probe's name and its arguments; the first of a clock that prints is the sign that all are attached.
script()
{
	local file name count arguments i
	while read -r file name count; do
		arguments='' format=$name
		for ((i = 0; i < count && i < 6; i++)); do
			arguments+=", arg$i"
			format+=' %lu'
		done
		# Negative ones are of 32 bits.
		case $name in
		load_done) arguments=${arguments/arg4/'(int32)arg4'} format='load_done %lu %lu %lu %lu %d %lu' ;;
		acquire_done) arguments=${arguments/arg5/'(int32)arg5'} format='acquire_done %lu %lu %lu %lu %lu %d' ;;
		kv_publish) arguments=${arguments/arg3/'(int32)arg3'} format='kv_publish %lu %lu %lu %d' ;;
		esac
		printf 'usdt:%s:cnre:%s { printf("%s\\n"%s); }\n' "$file" "$name" "$format" "$arguments"
	done
	printf 'interval:ms:100 { if (!@begun) { printf("begun\\n"); @begun = 1; } }\nEND { clear(@begun); }\n'
}
probes_of() # file
{
	readelf -n "$1" | awk -v file="$1" '/Provider:/ {ours = $2 == "cnre"} /Name:/ {name = $2} /Arguments:/ && ours {print file, name, NF - 1}' | sort -u
}
{ probes_of "$managerd"; probes_of "$library"; } >"$work/list"
[ "$(wc -l <"$work/list")" -ge 18 ] || { echo "$managerd and $library have $(wc -l <"$work/list") probes"; exit 1; }
script <"$work/list" >"$work/script"

bpftrace -q -e 'BEGIN { exit(); }' >"$work/bpftrace.log" 2>&1 </dev/null ||
	skip "bpftrace does not run here: $(grep -v RLIMIT_MEMLOCK "$work/bpftrace.log" | tail -n 1)"
start_tracer "$work/script" || { echo "bpftrace cannot attach: $(tail -n 3 "$work/bpftrace.log")"; exit 1; }

# ---- the run ----

make_checkpoint --layers 4 --experts 16 --top-k 4 --hidden 64 --intermediate 64 --vocab 512 --seed 1 || { echo "$reason"; exit 1; }
start_manager 700K --verify load --kv-ram 4M || { echo "$reason"; exit 1; }
ctl() { "$build/cnrectl" --socket "$socket" "$@" 2>>"$work/ctl.log"; }
counter() { number "$1" <"$work/stats"; }

: >"$work/expected"
"$build/probes-client" "$socket" "$checkpoint" >"$work/expected" 2>"$work/client.log" </dev/null &
client=$!
client_holds() { grep -q '^holds' "$work/expected" || ! kill -0 $client 2>/dev/null; }
until_true 300 client_holds && grep -q '^holds 3' "$work/expected" || { echo "probes-client: $(last_line "$work/client.log")"; exit 1; }
session=$(ctl clients --json | sed -n 's/.*"session": *\([0-9]*\).*/\1/p')
client_pid=$client
kill -KILL $client
wait $client 2>/dev/null
client=
client_has_ended() { [ "$(ctl stats --json | number client_deaths)" = 1 ]; }
until_true 200 client_has_ended || failed 'the manager does not see that its client has died'

engine() # name arguments...
{
	timeout 120 "$build/cnre-olmoe" --model "$checkpoint" --socket "$socket" --steps $steps --json --tokens "${@:2}" >"$work/$1.json" 2>"$work/$1.log" ||
		failed "cnre-olmoe: $(last_line "$work/$1.log")"
}
engine cold '95 28 14 7 61 3' --cache cnre
# A list of everything, of which most is not resident and no room is left.
for layer in 0 1 2 3; do for expert in {0..15}; do echo $layer $expert; done; done >"$work/list.warm"
ctl warm "$work/list.warm" >/dev/null || failed "warm: $(last_line "$work/ctl.log")"
warm_is_over() { ctl warm --json | grep -q '"state": *"over"'; }
until_true 100 warm_is_over || failed 'the warm list does not end'

prompt=$(seq -s ' ' 1 200)
engine compute "$prompt" --kv cnre
kv_is_there() { [ "$(ctl stats --json | number kv_published)" -ge 3 ]; }
until_true 100 kv_is_there || failed 'no KV block is published'
engine match "$prompt" --kv cnre
kv_has_evicted() { [ "$(ctl stats --json | number kv_evictions)" -ge 1 ]; }
for ((i = 0; i < 40; i++)); do
	kv_has_evicted && break
	engine others "$(seq -s ' ' $((i + 2)) $((i + 250)))" --kv cnre
done

sleep 1 # for what has happened to be printed
ctl stats --json >"$work/stats" || failed "stats: $(last_line "$work/ctl.log")"
epoch=$(sed -n 's/^restart \([0-9]*\) 0$/\1/p' "$work/events")

kill -KILL "$(child_of "$manager")" # the manager: its keeper is who was started
has_restarted() { grep -q "^restart $((epoch + 1)) 1$" "$work/events"; }
until_true 300 has_restarted || failed "no restart with kind 1: $(grep '^restart' "$work/events" | tr '\n' ' ')"
stop_tracer INT
! grep -i '^lost' "$work/events" "$work/bpftrace.log" || failed 'bpftrace lost events'

# ---- what was seen ----

events() { grep "^$1 " "$work/events"; }
count() { grep -cE "^$1( |\$)" "$work/events"; } # expression
total() { events "$1" | awk -v at="$2" '{sum += $(at + 1)} END {printf "%d", sum}'; } # name argument

for name in $(awk '$2 != "migrate" {print $2}' "$work/list" | sort -u); do # which needs a GPU: below
	[ "$(count "$name")" -gt 0 ] || failed "$name did not fire"
done

# The client's, in their order: without the session, which is the same in all, and how long it waited.
awk -v session="$session" '
	$1 ~ /^(acquire|lease)_/ && $1 != "lease_revoked" && $2 == session {
		if ($1 ~ /^acquire_(miss|done)/ && ($4 == 1 || $4 == 2)) next # a batch waits or not
		line = $1
		for (i = 3; i <= NF; i++) if ($1 != "acquire_done" || i != 6) line = line " " $i
		print line
	}' "$work/events" >"$work/seen"
grep -v '^holds' "$work/expected" | diff - "$work/seen" >"$work/diff" || {
	failed 'the library did not fire what its client did'
	sed 's/^/    | /' "$work/diff"
}
same 'lease_revoked' "$(grep '^lease_revoked' "$work/events" | head -n 1)" "lease_revoked $session $client_pid 3"
same 'waits begun and ended' "$(count acquire_miss)" "$(count acquire_done)"
events acquire_done | awk '$6 <= 0 || $6 > 100e9 {bad = 1} END {exit bad}' || failed 'acquire_done: a wait of no time, or of minutes'
same 'acquire_join' "$(count acquire_join)" "$(counter joins)"
same 'lease_taken' "$(count lease_taken)" "$(counter accesses)"
same 'leases taken and not given back' $(($(count lease_taken) - $(count lease_released))) 3

# The manager's, beside its counters.
same 'admit' "$(count admit)" "$(count load_start)"
same 'publish' "$(count publish)" "$(counter loads)"
same 'load_verify' "$(count load_verify)" "$(counter loads)"
same 'load_done with status 0' "$(count 'load_done [0-9]* [0-9]* [0-9]* [0-9]* 0')" "$(counter loads)"
same 'bytes of load_done' "$(total load_done 6)" "$(counter bytes_read)"
same 'slab bytes of load_start' "$(total load_start 5)" "$(counter bytes_loaded)"
same 'evict' "$(count evict)" "$(counter evictions)"
same 'slab bytes of evict' "$(total evict 4)" "$(counter bytes_evicted)"
same 'prefetches' "$(count 'admit 0 3 11 1')" 1
same 'prefetches in all' "$(count 'admit 0 [0-9]* [0-9]* 1')" "$(counter prefetches_issued)"
# Each load from its first to its last probe names one expert, and no two loads have a number.
awk '
	/^load_start/ {if ($2 in name) bad = 1; name[$2] = $3 " " $4 " " $5}
	/^load_chunk/ {if (!($2 in name)) bad = 1; chunks[$2]++}
	/^load_done/ || /^publish/ {if (name[$2] != $3 " " $4 " " $5 || chunks[$2] < 1) bad = 1}
	END {exit bad}' <(grep -E '^(load_(start|chunk|done)|publish) ' "$work/events" | sed '/^restart/q') || failed 'stages of one load do not belong together'
# Nothing is published twice or evicted without having been there, and the first is what the client took first.
awk '
	/^restart/ && $3 == 1 {exit}
	/^publish/ {bad += ($4 " " $5) in resident; resident[$4 " " $5] = 1}
	/^evict/ {bad += !(($3 " " $4) in resident); delete resident[$3 " " $4]}
	END {exit bad > 0}' "$work/events" || failed 'publish and evict do not fit each other'
same 'the first publish' "$(events publish | head -n 1 | cut -d ' ' -f 2-5)" '1 0 0 2'
same 'the first load_start' "$(events load_start | head -n 1)" "load_start 1 0 0 2 $(events evict | head -n 1 | cut -d ' ' -f 5) $session"
files=$(stat -c '%d %i' "$checkpoint"/*.safetensors | sort -u)
same 'files of load_chunk' "$(events load_chunk | awk '{print $4, $5}' | sort -u)" "$files"
[ "$(events load_chunk | awk '$6 % 4096 != 0 || $7 % 4096 != 0 || $7 == 0' | wc -l)" = 0 ] || failed 'load_chunk: a range that is not of whole pages'
[ "$(total load_chunk 6)" -ge "$(counter bytes_read)" ] || failed 'load_chunk: fewer bytes than were read'
[ "$(count 'reject 0 [0-3] [0-9]* 2')" -ge 1 ] || failed "reject: no warm expert for want of room: $(events reject | head -n 3 | tr '\n' ' ')"

# KV blocks.
same 'kv_publish with status 0' "$(count 'kv_publish 0 [0-9]* [0-9]* 0')" "$(counter kv_published)"
same 'kv_evict' "$(count kv_evict)" "$(counter kv_evictions)"
same 'kv_match' "$(events kv_match | sed -n 2p | cut -d ' ' -f 3,4)" "199 $(number matched_tokens <"$work/match.json")"

# ---- one that runs, attached and left ----

semaphore() # name
{
	local base address
	base=$(awk -v f="$managerd" '$6 == f && $3 == "00000000" {split($1, range, "-"); print range[1]; exit}' "/proc/$process/maps")
	address=$(readelf -n "$managerd" | awk -v name="$1" '/Name:/ {found = $2 == name} /Semaphore:/ && found {print $NF; exit}')
	dd if="/proc/$process/mem" bs=1 skip=$((0x$base + address)) count=2 2>/dev/null | od -An -tu2 | tr -d ' '
}
semaphores() { for name in load_start evict kv_publish; do printf '%s ' "$(semaphore $name)"; done; }
attach_running()
{
	start_tracer -p "$process" -e "usdt:$managerd:cnre:load_start { printf(\"load_start\\n\"); }
		usdt:$managerd:cnre:evict { printf(\"evict\\n\"); } interval:ms:100 { printf(\"begun\\n\"); }" ||
		failed "bpftrace cannot attach to a process: $(tail -n 2 "$work/bpftrace.log")"
}

process=$(child_of "$manager")
same 'semaphores before' "$(semaphores)" '0 0 0 '
for signal in INT KILL; do
	attach_running
	same 'semaphores while attached' "$(semaphores)" '1 1 0 '
	engine "running.$signal" '95 28 14 7 61 3' --cache cnre
	sleep 0.5
	[ "$(count load_start)" -gt 0 ] || failed "no load was seen in a manager that runs ($signal)"
	stop_tracer $signal
	semaphores_are_zero() { [ "$(semaphores)" = '0 0 0 ' ]; }
	until_true 50 semaphores_are_zero || failed "semaphores after SIG$signal to the tracer: $(semaphores)"
done

# ---- the arguments after the sixth, by the kernel's own tracing ----

# "NAME=REGISTER:TYPE" of the argument at a place, from 1, as uprobe_events wants it.
fetch() # probe place name
{
	readelf -n "$managerd" | awk -v probe="$1" '/Name:/ {found = $2 == probe} /Arguments:/ && found {print; exit}' |
		awk -v at="$2" -v name="$3" '{
			split($(at + 1), part, "@%")
			where = part[2]
			if (where ~ /^r[0-9]/) sub(/[dwb]$/, "", where); else sub(/^[er]/, "", where)
			printf "%s=%%%s:u%d", name, where, part[1] * 8
		}'
}
# Where the kernel finds it, and its semaphore, in the file: "OFFSET(OFFSET)".
place() # probe
{
	local location semaphore shift
	read -r location semaphore < <(readelf -n "$managerd" | awk -v probe="$1" '
		/Name:/ {found = $2 == probe} /Location:/ && found {gsub(",", ""); print $2, $NF; exit}')
	shift=$(readelf -SW "$managerd" | sed 's/^ *\[ *[0-9]*\]//' | awk '$1 == ".probes" {print "0x" $3, "-", "0x" $4}')
	printf '0x%x(0x%x)' $((location)) $((semaphore - (shift)))
}
tracing=/sys/kernel/tracing
by_kernel() # in a mount namespace of its own
{
	local group=cnre_test_$$ instance=$tracing/instances/cnre_test_$$ status=0
	mount -t tracefs tracefs $tracing && mkdir "$instance" || return 3
	{
		echo "p:$group/load_start $managerd:$(place load_start) $(fetch load_start 7 kind) $(fetch load_start 8 queued_ns)"
		echo "p:$group/load_done $managerd:$(place load_done) $(fetch load_done 7 service_ns)"
	} >"$work/definitions"
	cat "$work/definitions" >>$tracing/uprobe_events && echo 1 >"$instance/events/$group/enable" || status=3
	[ $status = 3 ] || engine traced '400 401' --cache cnre
	cat "$instance/trace" >"$work/trace"
	echo 0 >"$instance/events/$group/enable"
	rmdir "$instance"
	printf -- '-:%s/load_start\n-:%s/load_done\n' "$group" "$group" >>$tracing/uprobe_events
	return $status
}
export -f by_kernel engine failed fetch place
export work managerd build checkpoint socket steps tracing failures
before=$(ctl stats --json)
unshare --mount --propagation private bash -c by_kernel >"$work/kernel.log" 2>&1 </dev/null
status=$?
after=$(ctl stats --json)
if [ $status = 3 ]; then
	echo "no tracefs here: arguments after the sixth were not looked at ($(last_line "$work/kernel.log"))"
else
	loads=$(($(number loads <<<"$after") - $(number loads <<<"$before")))
	service=$(($(number service_ns <<<"$after") - $(number service_ns <<<"$before")))
	[ $loads -gt 0 ] || failed 'no load for the kernel to trace'
	same 'kind and queued_ns of load_start' "$(grep -c 'load_start: .* kind=0 queued_ns=[1-9]' "$work/trace")" $loads
	same 'service_ns of load_done' "$(sed -n 's/.*load_done: .* service_ns=//p' "$work/trace" | awk '{sum += $1} END {printf "%d", sum}')" $service
fi

stop_manager || failed "$reason"

# ---- between tiers: a GPU, which the driver of the tests plays ----

export LD_LIBRARY_PATH=$build/tests/fakecuda FAKECUDA_WORLD=$work/world
[ -e "$LD_LIBRARY_PATH/libcuda.so.1" ] || { echo 'make tests builds the driver that VRAM is asked with'; exit 1; }
grep migrate "$work/list" | script >"$work/migrate"
start_tracer "$work/migrate" || failed "bpftrace cannot attach again: $(tail -n 2 "$work/bpftrace.log")"
start_manager 4M --vram 64M --vram-reserve 32M || failed "$reason"
timeout 60 "$build/probes-client" "$socket" "$checkpoint" vram >"$work/vram" 2>"$work/client.log" </dev/null || failed "probes-client: $(last_line "$work/client.log")"
ctl stats --json >"$work/stats" || failed "stats: $(last_line "$work/ctl.log")"
has_uploads() { [ "$(count migrate)" = "$(counter vram_uploads)" ]; }
until_true 50 has_uploads || failed "migrate: $(count migrate), not $(counter vram_uploads)"
same 'bytes of migrate' "$(total migrate 6)" "$(counter migration_bytes)"
same 'the first migrate' "$(events migrate | head -n 1 | cut -d ' ' -f 1-6)" 'migrate 0 1 6 2 3'
stop_tracer INT
stop_manager || failed "$reason"
[ $failures = 0 ] || exit 1
echo "$(wc -l <"$work/list") probes fired as they should"
