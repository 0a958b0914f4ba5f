#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How much of the drive's bandwidth the loader gets: 6 MiB objects in order with its default settings, against the best
# of fio (io_uring, O_DIRECT, 1 and 4 MiB, depth 1 4 8 16), in turn within each round, on a file of random bytes beside
# the build. `ratio` is loader / fio, round by round, fio in the configuration with the best median.
#
# Both get huge pages, since the pool has them, and once more both get small ones (ratio_small): a drive behind virtio
# is much faster into large pieces of memory, so a loader on huge pages against fio on small ones would win for nothing.
#
# FILE_MIB (2048), ROUNDS (5).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-5}
build=${BUILD:-build}
mkdir -p "$build" || exit 1
TMPDIR=$(cd "$build" && pwd) # the file lies on the file system of the build; /tmp may be memory
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
# shellcheck disable=SC2034 # compare.sh wants it; no engine runs here
steps=1
file_mib=${FILE_MIB:-2048}
open_bench loader
command -v fio >/dev/null || give_up 'fio is missing: apt-get install fio'

build_program
file=$work/file
dd if=/dev/urandom of="$file" bs=1M count="$file_mib" status=none || give_up "no room for a file of $file_mib MiB"
sync "$file"

fio_mib() # block depth tunables
{
	GLIBC_TUNABLES=$3 fio --name=read --filename="$file" --rw=read --ioengine=io_uring --direct=1 --bs="$1" --iodepth="$2" \
		--size="${file_mib}M" --output-format=terse --terse-version=3 2>/dev/null | awk -F ';' '{printf "%.1f", $7 / 1024}'
}

run_fio() # block
{
	local depth value
	for depth in 1 4 8 16; do
		value=$(fio_mib "$1" "$depth" glibc.malloc.hugetlb=1)
		[ -n "$value" ] || give_up 'fio failed'
		note "fio_${1,,}_qd$depth" "$value"
		value=$(fio_mib "$1" "$depth" glibc.malloc.hugetlb=0)
		[ -n "$value" ] || give_up 'fio failed'
		note "fiosmall_${1,,}_qd$depth" "$value"
	done
}

# "WORD VALUE WORD VALUE ...": the value behind a word.
word() { sed -n "s|.*$1 \([0-9.]*\).*|\1|p"; }

run_loader() # name arguments...
{
	local name=$1
	shift
	answer=$("$program" "$@" "$file") || give_up 'bench_loader failed'
	note "${name}_mib" "$(word MiB/s <<<"$answer")"
	note "${name}_object_ms" "$(word median_ms <<<"$answer")"
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
	run_fio 1M
	run_loader loader
	run_loader small --small-pages
	run_loader pool --engine pool
	run_loader alone --alone
	run_fio 4M
done
best=$(best_of fio)
best_small=$(best_of fiosmall)
note_ratios ratio loader_mib "$best"
note_ratios ratio_small small_mib "$best_small"
note_ratios ratio_pool pool_mib "$best"

printf '%d MiB, objects of 6 MiB, %d rounds; median (lowest..highest)\n' "$file_mib" "$rounds"
echo "engine${answer#*engine}"
for name in fio_{1m,4m}_qd{1,4,8,16}; do
	printf '%-28s %s MiB/s, small pages %s\n' "$name" "$(show_spread "$name" 0)" "$(show_spread "${name/fio/fiosmall}" 0)"
done
printf '%-28s %s MiB/s, small pages %s\n' loader "$(show_spread loader_mib 0)" "$(show_spread small_mib 0)"
printf '%-28s %s MiB/s\n' 'pread pool' "$(show_spread pool_mib 0)"
printf '%-28s %s MiB/s, an object takes %s ms\n' 'one object at a time' "$(show_spread alone_mib 0)" "$(show_spread alone_object_ms 2)"
printf '%-28s %s, small pages %s, pread pool %s\n' "loader / $best" "$(show_spread ratio 3)" "$(show_spread ratio_small 3)" "$(show_spread ratio_pool 3)"
write_results
