#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What several drives give together: loop devices with their own file systems, throttled to fixed bandwidths, a checkpoint
# on one and mirrors of it on the others; cold acquires by several threads (bench_drives.c). Beside each figure stands the
# sum of what fio reads from each drive alone at the same throttle in the same round, and `ratio` is the one divided by the
# other.
#
#   two          primary 200 MB/s, mirror 50 MB/s, weights declared
#   measured, measured_again   the same, weights as the manager measures them: by probes at its start, and once more when they
#                have followed what it read in the meantime (a throttle lets some bursts through, which a short probe sees)
#   reversed     primary 50, mirror 200
#   slow, slow_measured, slow_measured_again   with a second mirror of 5 MB/s: ratio to the same without it in the same
#                round, of which it must take nothing
#   two_layers, slow_layers   as two and slow, but a layer begins when the one before has come whole
#   alike        primary 200, mirrors 196 and 20: drives of 5.0, 4.9 and 0.5 GB/s on a smaller scale
#
# `share` is the part of the bytes that the primary gave, in percent, beside what the weights ask for; the hot set is the
# experts 0..7 of every layer.
#
# OBJECTS ("6 18", MiB), THREADS (12), ROUNDS (3), CASES (all). 4 GiB of drive and 2 GiB of memory.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
mkdir -p "$build" || exit 1
TMPDIR=$(cd "$build" && pwd) # the images lie on the file system of the build; /tmp may be memory
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck source=tests/bench/drive_lib.sh
. tests/bench/drive_lib.sh
# shellcheck disable=SC2034 # compare.sh wants it; no engine runs here
steps=1
threads=${THREADS:-12}
hot=8
can_have_drives || { echo "drives: skipped: $reason"; exit 0; }
command -v fio >/dev/null || { echo 'drives: skipped: fio is missing: apt-get install fio'; exit 0; }
command -v jq >/dev/null || { echo 'drives: skipped: jq is missing: apt-get install jq'; exit 0; }
open_bench drives
close_all()
{
	stop_manager
	close_drives
	close_bench
}
trap close_all EXIT
build_program

declare -A shape=([6]='--layers 16 --experts 10 --hidden 512 --intermediate 4096' [18]='--layers 8 --experts 8 --hidden 1024 --intermediate 6144')

# One checkpoint, copied, so that the bytes are the same.
fill_drives() # object-mib
{
	local name
	checkpoint=$work/original
	# shellcheck disable=SC2086 # words
	make_checkpoint ${shape[$1]} --top-k 4 --vocab 512 --seed 1 --dense-format bf16 --shard-bytes 128M || give_up "$reason"
	for name in a b c; do
		open_drive $name $((checkpoint_bytes / 1048576 + 96)) || give_up "no drive $name: $(last_line "$work/gen.log")"
		cp -r "$checkpoint" "$work/$name/model" || give_up "no room on drive $name"
		sync -f "$work/$name"
	done
	rm -rf "$checkpoint"
	largest=$(cd "$work/a/model" && ls -S -- *.safetensors | head -n 1)
}

# MB/s that fio reads from one drive alone, three seconds of it.
read_alone() # drive
{
	fio --name=alone --filename="$work/$1/model/$largest" --rw=read --ioengine=io_uring --direct=1 --bs=1M --iodepth=8 --readonly \
		--time_based --runtime=3 --output-format=terse --terse-version=3 2>/dev/null | awk -F ';' '{printf "%.2f", $7 * 1024 / 1e6}'
}

# Notes what every drive gives alone, and the sum.
sum_alone() # name drive...
{
	local name=$1 drive value sum=0
	shift
	for drive; do
		value=$(read_alone "$drive")
		[ -n "$value" ] || give_up 'fio failed'
		note "${name}_$drive" "$value"
		sum=$(calculate "$sum + $value")
	done
	note "${name}_mb_s" "$sum"
}

ask() { "$build/cnrectl" --socket "$socket" "$1" --json; } # verb
bytes_of_drives() { ask drives | jq -r '.drives[] | "\(.directory) \(.bytes)"'; }
# Bytes that the drive of this folder has given so far.
bytes_of() { awk -v folder="$1" '$1 == folder {print $2}' <<<"$2"; }

# Mirrors are proven beside serving, and weights that nobody declared are measured: both must be over.
await_drives()
{
	local tries
	for ((tries = 0; tries < 1200; tries++)); do
		if ask status | jq -e '.mirrors | all(.state == "checked" and .refused == 0)' >/dev/null &&
			ask drives | jq -e '.weights == "measured" or .weights == "declared"' >/dev/null; then
			return 0
		fi
		sleep 0.1
	done
	give_up "the mirrors are not ready after 2 minutes: $(ask status | jq -c .mirrors), weights $(ask drives | jq -c .weights)"
}

# Reads the hot set from a manager that has nothing of it, and notes bandwidth, the primary's share and the ratio to `base`.
read_cold() # name base weight-in-percent-of-primary
{
	local name=$1 order=free before after given all
	[[ $name != *_layers ]] || order=layers # a case whose name ends so reads layer by layer
	before=$(bytes_of_drives) || give_up 'cnrectl drives failed'
	answer=$("$program" "$socket" "$checkpoint" "$threads" "$hot" $order) || give_up "$name: bench_drives failed"
	after=$(bytes_of_drives) || give_up 'cnrectl drives failed'
	given=$(($(bytes_of "$checkpoint" "$after") - $(bytes_of "$checkpoint" "$before")))
	all=$(($(awk '{sum += $2} END {printf "%.0f", sum}' <<<"$after") - $(awk '{sum += $2} END {printf "%.0f", sum}' <<<"$before")))
	note "${name}_mb_s" "$(number mb_s <<<"$answer")"
	note "${name}_ratio" "$(calculate "$(last "${name}_mb_s") / $(last "${2}_mb_s")")"
	note "${name}_share" "$(calculate "100 * $given / $all")"
	note "${name}_weight" "$3"
}

# Whether this case was asked for.
wanted() { [ -z "${CASES:-}" ] || [[ " $CASES " == *" $1 "* ]]; }

compare() # object-mib case base weight primary mirrors... -- arguments
{
	local name=o$1_$2 base=o$1_$3 weight=$4 primary=$5
	local arguments=()
	wanted "$2" || return 0
	shift 5
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		arguments+=(--mirror "$work/$1/model")
		shift
	done
	shift
	checkpoint=$work/$primary/model
	start_manager 2G "${arguments[@]}" --keeper no "$@" || give_up "$name: $reason"
	await_drives
	read_cold "$name" "$base" "$weight"
	if [[ $name == *_measured ]]; then
		"$build/cnrectl" --socket "$socket" reset >/dev/null || give_up 'cnrectl reset failed'
		read_cold "${name}_again" "${base/%_measured/_measured_again}" "$weight"
	fi
	stop_manager || give_up "$name: $reason"
}

round() # object-mib
{
	throttle a 200000000 && throttle b 50000000 && throttle c 5000000 || give_up 'the throttle was refused'
	sum_alone "o$1_alone" a b
	compare "$1" two alone 80 a b -- --drive-weights 200,50
	compare "$1" measured alone 80 a b --
	compare "$1" reversed alone 20 b a -- --drive-weights 50,200
	! wanted two || compare "$1" slow two 80 a b c -- --drive-weights 200,50,5
	! wanted measured || compare "$1" slow_measured measured 80 a b c --
	compare "$1" two_layers alone 80 a b -- --drive-weights 200,50
	! wanted two_layers || compare "$1" slow_layers two_layers 80 a b c -- --drive-weights 200,50,5
	wanted alike || return 0
	throttle b 196000000 && throttle c 20000000
	sum_alone "o$1_alike_alone" a b c
	compare "$1" alike alike_alone 48.1 a b c -- --drive-weights 5.0,4.9,0.5
}

# The newest value of a metric.
last() { awk -v name="$1" '$1 == name {value = $2} END {print value}' "$work/metrics"; }

for object in ${OBJECTS:-6 18}; do
	fill_drives "$object"
	for ((round = 0; round < rounds; round++)); do
		round "$object"
	done
	close_drives
done

printf 'cold experts 0..%d of every layer, %d threads, %d rounds; median (lowest..highest)\n' $((hot - 1)) "$threads" "$rounds"
printf '%-8s %-20s %-24s %-24s %-22s %s\n' OBJECT CASE 'MB/s' 'beside, MB/s' ratio 'primary gave, percent (by weight)'
show_case() # object-mib case base
{
	local name=o$1_$2
	grep -q "^${name}_ratio " "$work/metrics" || return 0
	printf '%-8s %-20s %-24s %-24s %-22s %s\n' "$1 MiB" "$2" "$(show_spread "${name}_mb_s" 1)" "$(show_spread "o$1_$3_mb_s" 1)" \
		"$(show_spread "${name}_ratio" 3)" "$(show_spread "${name}_share" 1) ($(median_of "${name}_weight"))"
}
for object in ${OBJECTS:-6 18}; do
	show_case "$object" two alone
	show_case "$object" measured alone
	show_case "$object" measured_again alone
	show_case "$object" reversed alone
	show_case "$object" slow two
	show_case "$object" slow_measured measured
	show_case "$object" slow_measured_again measured_again
	show_case "$object" two_layers alone
	show_case "$object" slow_layers two_layers
	show_case "$object" alike alike_alone
done
echo 'beside: the sum of the drives alone; beside slow: two drives, without the slow one'
write_results
