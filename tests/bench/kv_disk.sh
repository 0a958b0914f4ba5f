#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How much of the drive's bandwidth KV blocks get: 64 blocks of 12 MiB, written and synced each, then read and checked,
# against fio on the same file system (io_uring, O_DIRECT, 1 MiB, depth 4 8 16; for writes a new file that is synced at its
# end), in turn within each round. `ratio` is blocks / fio, round by round, fio in the configuration with the best median.
# Small pages on both sides. `calls` are system calls of the disk's thread for a block.
#
# BLOCKS (64), BLOCK_MIB (12), ROUNDS (5).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
build=${BUILD:-build}
mkdir -p "$build" || exit 1
TMPDIR=$(cd "$build" && pwd) # the files lie on the file system of the build; /tmp may be memory
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck disable=SC2034 # compare.sh wants it; no engine runs here
steps=1
blocks=${BLOCKS:-64}
block_mib=${BLOCK_MIB:-12}
file_mib=$((blocks * block_mib))
open_bench kv_disk
command -v fio >/dev/null || give_up 'fio is missing: apt-get install fio'

build_program
file=$work/file

fio_mib() # read|write depth field
{
	GLIBC_TUNABLES=glibc.malloc.hugetlb=0 fio --name="$1" --filename="$file" --rw="$1" --ioengine=io_uring --direct=1 --bs=1M --iodepth="$2" \
		--size="${file_mib}M" --fallocate=none --end_fsync=1 --output-format=terse --terse-version=3 2>/dev/null |
		awk -F ';' -v field="$3" '{printf "%.1f", $field / 1024}'
}

run_fio()
{
	local depth value
	for depth in 4 8 16; do
		rm -f "$file"
		value=$(fio_mib write "$depth" 48)
		[ -n "$value" ] || give_up 'fio failed'
		note "fiowrite_qd$depth" "$value"
		value=$(fio_mib read "$depth" 7)
		[ -n "$value" ] || give_up 'fio failed'
		note "fioread_qd$depth" "$value"
	done
}

# "WORD VALUE WORD VALUE ...": the value behind a word.
word() { sed -n "s|.*$1 \([0-9.]*\).*|\1|p"; }

run_blocks() # name arguments...
{
	local name=$1
	shift
	mkdir -p "$work/kv"
	answer=$("$program" --blocks "$blocks" --bytes "$((block_mib << 20))" "$@" "$work/kv") || give_up 'bench_kv_disk failed'
	note "${name}_write_mib" "$(word write_mib <<<"$answer")"
	note "${name}_read_mib" "$(word read_mib <<<"$answer")"
	note "${name}_write_calls" "$(word write_calls <<<"$answer")"
	note "${name}_read_calls" "$(word read_calls <<<"$answer")"
	note check_mib "$(word check_mib <<<"$answer")"
}

# The configuration of fio with the best median.
best_of() # prefix
{
	local name
	cut -d ' ' -f 1 "$work/metrics" | sort -u | grep "^$1_" | while read -r name; do
		echo "$(median_of "$name") $name"
	done | sort -g | tail -n 1 | cut -d ' ' -f 2
}

note_ratios() # name over under
{
	local ratios
	ratios=$(awk -v over="$2" -v under="$3" '
		$1 == over {a[++n] = $2}
		$1 == under {b[++m] = $2}
		END {for (i = 1; i <= n; i++) print a[i] / b[i]}' "$work/metrics")
	for ratio in $ratios; do note "$1" "$ratio"; done
}

for ((round = 0; round < rounds; round++)); do
	run_fio
	run_blocks ring
	run_blocks plain --plain
done
best_read=$(best_of fioread)
best_write=$(best_of fiowrite)
for engine in ring plain; do
	note_ratios "ratio_${engine}_read" "${engine}_read_mib" "$best_read"
	note_ratios "ratio_${engine}_write" "${engine}_write_mib" "$best_write"
done

printf '%d blocks of %d MiB, %d rounds; median (lowest..highest)\n' "$blocks" "$block_mib" "$rounds"
for depth in 4 8 16; do
	printf '%-28s read %s MiB/s, write %s MiB/s\n' "fio, depth $depth" "$(show_spread "fioread_qd$depth" 0)" "$(show_spread "fiowrite_qd$depth" 0)"
done
for engine in ring plain; do
	printf '%-28s read %s MiB/s, write %s MiB/s\n' "blocks, $engine" "$(show_spread "${engine}_read_mib" 0)" "$(show_spread "${engine}_write_mib" 0)"
	printf '%-28s read %s, write %s\n' "  calls for a block" "$(show_spread "${engine}_read_calls" 1)" "$(show_spread "${engine}_write_calls" 1)"
	printf '%-28s read %s, write %s\n' "  / $best_read, $best_write" "$(show_spread "ratio_${engine}_read" 3)" "$(show_spread "ratio_${engine}_write" 3)"
done
printf '%-28s %s MiB/s\n' 'check of payloads alone' "$(show_spread check_mib 0)"
write_results
