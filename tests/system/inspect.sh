#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cnre-inspect on a real manager: nearly every byte that three engines cause is attributed, on the file system of the build and on
# an ext4 of its own; who reads experts past the manager is named at once; waits add up to what the manager counts; each thing
# that can be missing has a sentence of its own, and the counters are shown in spite of it; and nothing of it stays behind, not
# even when it is killed. Exit status 0 passed, 1 failed, 77 something is missing. Needs root.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
for program in cnre-managerd cnrectl cnre-gen cnre-olmoe; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done
[ -x "$build/cnre-inspect" ] || { echo 'cnre-inspect was left out of the build: it wants clang, bpftool, libbpf-dev and libelf-dev'; exit 77; }
[ "$(id -u)" = 0 ] || { echo 'needs root: only root may look into the kernel'; exit 77; }
for program in jq readelf objcopy setpriv unshare; do
	command -v $program >/dev/null || { echo "$program is not installed"; exit 77; }
done
[ -e /sys/kernel/btf/vmlinux ] || { echo 'this kernel does not describe its types (/sys/kernel/btf/vmlinux)'; exit 77; }
bpftool=$(command -v bpftool || echo /usr/sbin/bpftool)

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
here=$(mktemp -d "$build/inspect-XXXXXX") || exit 1
mounted='' loop='' inspector='' holder='' rogue='' throttle=''
steps=24
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
close_test()
{
	for process in $inspector $rogue $holder; do
		kill "$process" 2>/dev/null
		wait "$process" 2>/dev/null
	done
	compare_close
	[ -z "$mounted" ] || umount "$work/disk" 2>/dev/null || umount -l "$work/disk"
	[ -z "$loop" ] || delpart "$loop" 1 2>/dev/null
	[ -z "$loop" ] || losetup -d "$loop"
	[ -z "$throttle" ] || rmdir "$throttle" 2>/dev/null
	rm -rf "$work" "$here"
}
trap close_test EXIT
unset CNRE_SOCKET CNRE_RAM CNRE_POLICY

failures=0
failed() # what
{
	echo "FAILED: $1"
	failures=$((failures + 1))
}
stop() { echo "FAILED: $1"; exit 1; }

# ---- an inspector beside everything else ----
await() # seconds what command...
{
	local until=$((SECONDS + $1)) what=$2
	shift 2
	until "$@"; do
		[ $SECONDS -lt $until ] || { failed "$what did not come"; return 1; }
		sleep 0.05
	done
}
begin() # arguments of cnre-inspect
{
	: >"$work/err"
	timeout 200 "$build/cnre-inspect" --socket "$socket" "$@" >"$work/out" 2>"$work/err" &
	inspector=$!
	await 30 "cnre-inspect $1" grep -q 'looking at manager' "$work/err" || { cat "$work/err"; return 1; }
}
finish()
{
	local status
	kill -INT "$(pgrep -P "$inspector")"
	wait "$inspector"
	status=$?
	inspector=
	[ $status = 0 ] || failed "cnre-inspect ended with $status: $(last_line "$work/err")"
}
report() { jq -r "$1" "$work/out"; }
holds() # what jq-condition
{
	[ "$(jq -s -r "last | $2" "$work/out" 2>/dev/null)" = true ] || failed "$1: not $2: $(jq -s -c 'last | del(.experts, .layers, .notes)' "$work/out" 2>/dev/null | cut -c1-1500)"
}
statistic() { "$build/cnrectl" --socket "$socket" stats --json | jq ".$1"; }

serve() # folder arguments...
{
	checkpoint=$1/checkpoint
	make_checkpoint --layers 4 --experts 32 --top-k 4 --hidden 512 --intermediate 512 --vocab 512 --seed 1 --popularity olmoe --expert-format bf16 ||
		stop "$reason"
	start_manager $((checkpoint_bytes / 2)) "${@:2}" || stop "$reason"
}

# ---- every byte has a name ----
attributed() # where
{
	local before after
	before=$(statistic bytes_read)
	begin io --json --top 100000 || return
	run_shared shared 3 || failed "$1: $reason"
	after=$(statistic bytes_read)
	finish
	holds "$1" '.attributed_share >= 0.995'
	holds "$1" '.self_bytes == 0 and .lost.records == 0 and .beyond_bytes == 0'
	holds "$1" '.total_bytes == .attributed_bytes + .self_bytes + .unexplained_bytes'
	holds "$1" "([.experts[].bytes] | add) == .by.loads and ([.layers[].bytes] | add) == .by.loads"
	holds "$1" '([.clients[].bytes] | add) == .by.loads and ([.kinds[]] | add) == .by.loads'
	holds "$1" '([.drives[].by.loads] | add) == .by.loads'
	holds "$1" '[.clients[] | select(.name == "cnre-olmoe" and .loads > 0)] | length == 3'
	# Nothing that the manager says it has read is missed, and nothing counted twice.
	holds "$1" ".by.loads >= $((after - before)) * 0.999 and .by.loads <= $((after - before)) * 1.001"
	printf '%s: %.3f %% of %d bytes are attributed, %d unexplained\n' "$1" "$(report '100 * .attributed_share')" "$(report .total_bytes)" "$(report .unexplained_bytes)"
}
serve "$here"
if [ "$(jq -n "$(stat -c %d "$here") >= 256")" != true ]; then
	echo "the build lies on a file system without a block device: only the loop device was tried"
else
	attributed "the build's file system ($(stat -f -c %T "$here"))"
fi

# ---- who goes past the manager is named while it does ----
# With the library's sanitizer, where it has one: it must come first in a process.
sanitizer=''
! readelf -Ws --dyn-syms "$build/libcnre.so" | grep -q __asan_init || sanitizer=-fsanitize=address,undefined
# shellcheck disable=SC2086 # one word or none
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O1 -fno-omit-frame-pointer $sanitizer -Iclient -o "$work/client" tests/system/inspect_client.c -L"$build" -lcnre -Wl,-rpath,"$build" ||
	stop 'the client of the test does not build'
shard=$(ls "$checkpoint"/*.safetensors | head -n 1)
middle=$(($(stat -c %s "$shard") / 2 >> 20 << 20))
start_client()
{
	coproc CLIENT { exec "$work/client" "$checkpoint" "$socket" 2>/dev/null; }
	holder=$CLIENT_PID
	read -r -t 30 -u "${CLIENT[0]}" answer
	[ "$answer" = 'attached 0' ] || failed "the client of the test: $answer"
}
tell() # command
{
	echo "$1" >&"${CLIENT[1]}"
	read -r -t 30 -u "${CLIENT[0]}" answer
}
end_client()
{
	local in=${CLIENT[1]}
	exec {in}>&-
	wait "$holder"
	holder=
}
begin io --json && {
	dd if="$shard" of=/dev/null iflag=direct bs=1M skip=$((middle >> 20)) count=4 status=none &
	rogue=$!
	wait $rogue
	await 10 'the line about dd' grep -q "process $rogue (dd) reads experts by itself, past the manager: .*safetensors" "$work/err"
	start_client
	tell "read $shard $middle 4194304"
	await 10 'the line about the client' grep -q "process $holder (client) reads experts by itself" "$work/err"
	finish
	# What lies between the experts is not theirs.
	holds 'a stranger' ".processes[] | select(.pid == $rogue) | .role == \"other\" and .self_bytes > 3000000 and .bytes == 4194304"
	holds 'an engine' ".processes[] | select(.pid == $holder) | .role == \"engine\" and .self_bytes > 3000000"
	holds 'an engine' '.self_bytes > 3000000 and .attributed_share < 0.6'
	rogue=
	end_client
}

# ---- waits add up, and have causes ----
begin waits --json && {
	run_shared shared 3 || failed "waits: $reason"
	finish
	# To within a hundredth: both sides are taken from the same clock readings, the counter's in the client's own ledger.
	holds waits '.waits.count > 20 and .counted_s > 0 and .waits.sum_s / .counted_s > 0.99 and .waits.sum_s / .counted_s < 1.01'
	holds waits '([.causes[].sum_s] | add) / .waits.sum_s > 0.999999 and ([.causes[].sum_s] | add) / .waits.sum_s < 1.000001'
	holds waits '([.layers[].sum_s] | add) / .waits.sum_s > 0.999999 and ([.layers[].count] | add) == .waits.count'
	holds waits '([.waits.buckets[].count] | add) == .waits.count and .waits.p50_s <= .waits.p99_s and .waits.p99_s <= .waits.max_s'
	holds waits '.causes.disk.sum_s > 0 and .causes.unknown.sum_s < 0.05 * .waits.sum_s and (.waiting | length) == 0'
}

# ---- loads: a line each ----
before=$(statistic loads)
begin loads --json && {
	run_shared shared 2 || failed "loads: $reason"
	finish
	loads=$(($(statistic loads) - before))
	[ "$(jq -s '[.[] | select(.event == "load")] | length' "$work/out")" = $loads ] || failed "loads: not $loads lines"
	holds loads ".verb == \"loads\" and .loads == $loads and .failed == 0 and .under_way == 0"
	[ "$(jq -s '[.[] | select(.event == "load") | .disk_s > 0 and .publish_s >= 0 and .bytes > 0 and (.drives | length) == 1 and .client == "cnre-olmoe"] | all' \
		"$work/out")" = true ] || failed 'loads: a line without its stages'
	[ "$(jq -s '[.[] | select(.event == "load" and .kind == "demand" and .first_use_s == null)] | length' "$work/out")" -le $((loads / 10)) ] ||
		failed 'loads: a demand that nobody used'
}

# ---- leases: what comes and goes while it attaches is not held ----
start_client
echo 'turn 2 7' >&"${CLIENT[1]}"
begin leases --json --threshold 0.9 && {
	sleep 1.5
	finish
	holds 'leases that come and go' '.older == 0 and .leased <= 8'
}
read -r -t 30 -u "${CLIENT[0]}" answer
[ "$answer" = 'turn 0' ] || failed "turn: $answer"
end_client

# ---- leases: who holds what, and from where ----
begin leases --json --threshold 0.5 && {
	start_client
	tell 'hold 2 7'
	[ "$answer" = 'hold 0' ] || [ "$answer" = 'hold 1' ] || failed "hold: $answer"
	sleep 1
	finish
	holds leases "[.leases[] | select(.pid == $holder and .layer == 2 and .expert == 7 and .name == \"holder\" and .age_s >= 0.5)] | length == 1"
	holds leases '.leases[0].stack | length >= 1 and (.[0] | test("libcnre.so"))'
	begin leases --json --threshold 0
	tell 'hold 2 8'
	sleep 0.3
	finish
	holds 'leases from before' '.seen == 1 and .not_seen == 1'
	end_client
}

# ---- a client with a library of its own, under a name of its own, hides nobody else ----
own=$work/$'\e[31mred'
mkdir "$own"
objcopy --remove-section .note.stapsdt "$build/libcnre.so.0" "$own/libcnre.so.0" 2>/dev/null
mkfifo "$work/idle"
LD_LIBRARY_PATH=$own timeout 100 "$work/client" "$checkpoint" "$socket" >"$work/own.out" 2>&1 <>"$work/idle" &
rogue=$!
await 30 'a client with a library of its own' grep -q 'attached 0' "$work/own.out" && begin leases --json --threshold 0 && {
	start_client
	tell 'hold 2 9'
	sleep 0.5
	finish
	holds 'a client beside one without probes' '[.leases[] | select(.layer == 2 and .expert == 9)] | length == 1'
	holds 'a client without probes' '[.notes[] | select(test("^client [0-9]+: .*red/libcnre.so.0: has no probes at all"))] | length == 1'
	holds 'its path' '[.notes[] | select(test("[\u0000-\u001f]"))] | length == 0'
	end_client
}
kill "$(pgrep -P $rogue)"
wait $rogue
rogue=

# ---- what is missing is said, in one line, each in its own; and the counters are shown ----
said=$work/said
: >"$said"
lacks() # what part-of-the-message command...
{
	local what=$1 part=$2 status
	shift 2
	timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
	[ $status = 1 ] || failed "$what: exit status $status"
	[ "$(wc -l <"$work/err")" = 1 ] || failed "$what: not one line: $(cat "$work/err")"
	grep -q -- "$part" "$work/err" || failed "$what: \"$part\" is not in: $(cat "$work/err")"
	sed 's/^cnre-inspect: [a-z]*: //' "$work/err" >>"$said"
}
counters() { grep -q "$1" "$work/out" || failed "$2: no counters: $(head -n 3 "$work/out")"; }
inspect=("$build/cnre-inspect" --socket "$socket" --seconds 0.3)
# Runs a command where a folder is empty.
# shellcheck disable=SC2016 # for the inner shell
hidden=(unshare -m sh -c 'mount --make-rprivate / && mount -t tmpfs none "$1" && shift && exec "$@"' sh)
lacks 'no capabilities' 'lacks CAP_BPF and CAP_PERFMON' setpriv --bounding-set=-bpf,-perfmon,-sys_admin "${inspect[@]}" io
counters 'read by the manager' 'no capabilities'
lacks 'no CAP_BPF' 'lacks CAP_BPF:' setpriv --bounding-set=-bpf,-sys_admin "${inspect[@]}" waits
counters 'felt wait .* in all' 'no CAP_BPF'
lacks 'no types' '/sys/kernel/btf/vmlinux' "${hidden[@]}" /sys/kernel/btf "${inspect[@]}" loads
counters '[0-9]* loads of' 'no types'
lacks 'no types by name' 'names' env CNRE_INSPECT_BTF=/nonexistent "${inspect[@]}" leases
counters 'LEASED' 'no types by name'
lacks 'no uprobes' 'CONFIG_UPROBE_EVENTS' "${hidden[@]}" /sys/bus/event_source/devices "${inspect[@]}" io
counters 'read by the manager' 'no uprobes'
lacks 'a user namespace' 'perf_event_paranoid' unshare -U -r "${inspect[@]}" io
counters 'read by the manager' 'a user namespace'
lacks 'no manager' 'managerd\|no such\|No such\|nobody' "$build/cnre-inspect" --socket "$work/nobody.sock" --seconds 0.3 io
lacks 'no such process' 'process 4194304: there is none' "$build/cnre-inspect" --manager 4194304 --seconds 0.3 io
lacks 'no manager, but a process' 'listens on no socket' "$build/cnre-inspect" --manager $$ --seconds 0.3 io
objcopy --remove-section .note.stapsdt "$build/libcnre.so.0" "$work/stripped.so" 2>/dev/null
lacks 'a stripped library' 'has no probes at all' "${inspect[@]}" --library "$work/stripped.so" waits
counters 'felt wait .* in all' 'a stripped library'
sed 's/acquire_done/acquire_dome/g' "$build/libcnre.so.0" >"$work/misspelt.so"
lacks 'a misspelt probe' 'misspelt.so: has no probe cnre:acquire_done' "${inspect[@]}" --library "$work/misspelt.so" waits
counters 'felt wait .* in all' 'a misspelt probe'
lacks 'no library' 'nonexistent.so: No such file' "${inspect[@]}" --library /nonexistent.so waits
counters 'felt wait .* in all' 'no library'
[ "$(sort "$said" | uniq -d | wc -l)" = 0 ] || failed "two causes have the same words: $(sort "$said" | uniq -d)"
for wrong in 'nonsense' 'io --seconds x' '--nonsense io' 'io waits' ''; do
	# shellcheck disable=SC2086 # words
	timeout 20 "$build/cnre-inspect" $wrong >"$work/out" 2>&1
	status=$?
	[ $status = 2 ] || failed "cnre-inspect $wrong: exit status $status"
done
# By its process, and where tracefs is not mounted: nothing of it is needed.
timeout 30 unshare -m sh -c 'mount --make-rprivate / && { umount -l /sys/kernel/debug/tracing /sys/kernel/tracing 2>/dev/null; exec "$@"; }' sh \
	"$build/cnre-inspect" --manager "$manager" --seconds 0.3 --json io >"$work/out" 2>"$work/err" || failed "without tracefs: $(cat "$work/err")"
holds 'by its process' ".manager == $("$build/cnrectl" --socket "$socket" status --json | jq .pid)"
stop_manager || failed "$reason"

# ---- a manager without probes, or with another set of them ----
with_program() # program part
{
	chmod 755 "$1"
	: >"$work/log"
	timeout 120 "$1" --model "$checkpoint" --socket "$work/other.sock" --keeper no >"$work/log" 2>&1 </dev/null &
	rogue=$!
	await 30 'another manager' grep -q '^ready' "$work/log" && {
		lacks "$2" "$2" "$build/cnre-inspect" --socket "$work/other.sock" --seconds 0.3 io
		counters 'read by the manager' "$2"
	}
	kill "$(pgrep -P $rogue)"
	wait $rogue
	rogue=
}
objcopy --remove-section .note.stapsdt "$build/cnre-managerd" "$work/stripped-managerd" 2>/dev/null
with_program "$work/stripped-managerd" 'stripped-managerd: has no probes at all'
sed 's/load_chunk/load_chonk/g' "$build/cnre-managerd" >"$work/misspelt-managerd"
with_program "$work/misspelt-managerd" 'misspelt-managerd: has no probe cnre:load_chunk'

# ---- on an ext4 of its own: a partition, so that sectors are not those of the file system ----
own_disk()
{
	local device
	truncate -s 500M "$work/image" && loop=$(losetup --show -f --direct-io=on "$work/image" 2>/dev/null || losetup --show -f "$work/image") || return
	device=$loop
	if addpart "$loop" 1 20480 819200 2>/dev/null && await 5 'the partition' test -b "${loop}p1"; then
		device=${loop}p1
	fi
	mkfs.ext4 -q -F "$device" && mkdir "$work/disk" && mount "$device" "$work/disk"
}
kv=(--kv-ram 16M --kv-dir "$work/kv")
if command -v mkfs.ext4 >/dev/null && own_disk; then
	mounted=yes
	mkdir "$work/disk/kv"
	kv=(--kv-ram 16M --kv-dir "$work/disk/kv")
	serve "$work/disk" "${kv[@]}"
	attributed "ext4 on $(basename "$(findmnt -n -o SOURCE "$work/disk")")"
	# Of a drive that is throttled, threads of the kernel read for the manager.
	throttle=/sys/fs/cgroup/blkio/cnre-$$
	if mkdir "$throttle" 2>/dev/null; then
		echo "$(lsblk -n -d -o MAJ:MIN "$loop" | tr -d ' ') 100000000" >"$throttle/blkio.throttle.read_bps_device"
		for process in $(pgrep -f "cnre-managerd.*$socket"); do
			echo "$process" >"$throttle/cgroup.procs" # the keeper, too
		done
		begin io --json && {
			steps=6 run_shared shared 1 || failed "throttled: $reason"
			finish
			holds throttled '.attributed_share >= 0.995 and .by.loads > 0'
			holds throttled '[.processes[] | select(.role == "kernel") | .by.loads] | add > 0'
		}
		for process in $(cat "$throttle/cgroup.procs"); do
			echo "$process" >/sys/fs/cgroup/blkio/cgroup.procs
		done
		rmdir "$throttle"
	else
		echo 'no blkio control group of version 1: no drive was throttled'
	fi
else
	echo 'no loop device: only the file system of the build was tried'
	serve "$work" "${kv[@]}"
fi

# ---- files of KV prefixes are the manager's, and known ----
talk() { timeout 60 "$build/cnre-olmoe" --model "$checkpoint" --socket "$socket" --tokens "$(seq -s ' ' 1 400)" --steps 2 --cache cnre --kv cnre >"$work/talk" 2>&1 </dev/null; }
talk || failed "an engine with KV: $(last_line "$work/talk")"
stop_manager || failed "$reason"
start_manager $((checkpoint_bytes / 2)) "${kv[@]}" || stop "$reason"
find "${kv[3]}" -type f -exec dd if={} of=/dev/null iflag=nocache count=0 status=none ';'
begin io --json && {
	talk || failed "an engine with KV again: $(last_line "$work/talk")"
	finish
	if [ -n "$mounted" ] || [ "$(stat -f -c %T "$work")" != tmpfs ]; then
		holds kv '.by.kv > 0 and .attributed_share >= 0.99'
	fi
}

# ---- a manager that is killed, and its successor ----
begin io --json && {
	kill -KILL "$("$build/cnrectl" --socket "$socket" status --json | jq .pid)"
	run_shared shared 2 || failed "after a restart: $reason"
	finish
	holds 'after a restart' '.attributed_share >= 0.995 and .self_bytes == 0 and .by.loads > 0'
	holds 'after a restart' '.notes | any(test("the manager was restarted"))'
	grep -q 'reads experts by itself' "$work/err" && failed 'after a restart the manager is taken for a stranger'
}
manager_process=$("$build/cnrectl" --socket "$socket" status --json | jq .pid)

# ---- nothing stays behind ----
attached() { "$bpftool" prog show 2>/dev/null | grep -cE 'name on_(probe|read|first_use|lease_taken)'; }
events() { cat /sys/kernel/tracing/uprobe_events 2>/dev/null; }
# How many are attached, in the manager's own memory.
semaphore() # probe
{
	local at base
	at=$(readelf -n "$build/cnre-managerd" | grep -A1 "Name: $1\$" | sed -n 's/.*Semaphore: 0x0*\([0-9a-f]*\)$/\1/p' | head -n 1)
	base=$(sed -n '/ 00000000 .*cnre-managerd$/{s/-.*//p;q}' "/proc/$manager_process/maps")
	dd if="/proc/$manager_process/mem" bs=1 skip=$((0x$base + 0x$at)) count=2 status=none | od -An -tu2 | tr -d ' '
}
clean() # when
{
	[ "$(attached)" -le "$programs_before" ] || failed "$1: programs are still in the kernel"
	[ "$(events)" = "$events_before" ] || failed "$1: events in tracefs"
	[ -z "$(find /sys/fs/bpf -mindepth 1 -name '*inspect*' 2>/dev/null)" ] || failed "$1: something is pinned"
	[ "$(semaphore load_start)" = 0 ] || failed "$1: the semaphore of load_start is $(semaphore load_start)"
}
events_before=$(events)
# The kernel lets go of programs a while after their process; those of an inspector beside this test may stay.
for ((i = 0; i < 50; i++)); do
	programs_before=$(attached)
	[ "$programs_before" != 0 ] || break
	sleep 0.1
done
clean 'before'
begin loads && {
	[ "$(semaphore load_start)" = 1 ] || failed "while it runs the semaphore of load_start is $(semaphore load_start)"
	[ "$(attached)" -gt "$programs_before" ] || failed 'while it runs there are no programs in the kernel'
	finish
	await 10 'the end of the programs' eval '[ "$(attached)" -le "$programs_before" ]'
	clean 'after its end'
}
for verb in io leases loads; do
	begin $verb || continue
	kill -KILL "$(pgrep -P "$inspector")"
	wait "$inspector" 2>/dev/null
	inspector=
	await 10 "the end of the programs of $verb" eval '[ "$(attached)" -le "$programs_before" ] && [ "$(semaphore load_start)" = 0 ]'
	clean "killed: $verb"
done
stop_manager || failed "$reason"

[ $failures = 0 ] && echo 'inspect: bytes, waits, loads and leases are told, what is missing too, and nothing stays behind'
exit $((failures > 0))
