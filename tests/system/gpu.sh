#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What make check-gpu runs on a real GPU, with the stand-in driver: so that it works where there is a GPU at last. And that it
# skips with a reason where there is none.
cd "$(dirname "$0")/../.." || exit 1
build=${CNRE_BUILD:-build}
program=$build/tests/gpu/check-gpu
work=$(mktemp -d /dev/shm/gpu-check.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "$1" && failed=1; }

LD_LIBRARY_PATH=$(realpath "$build/tests/fakecuda") FAKECUDA_WORLD=$work/world FAKECUDA_DEVICES=2 FAKECUDA_REPORT=$work/report \
	timeout -k 5 120 "$program" >"$work/output" 2>&1 || complain "check-gpu with the stand-in driver: $?"
cat "$work/output"
grep -q '^[0-9]* passed, 0 failed' "$work/output" || complain 'no result'
! grep -v ' note: ' "$work/report" 2>/dev/null || complain 'rules of the driver were broken'

LD_LIBRARY_PATH=$(realpath "$build/tests/fakecuda") FAKECUDA_WORLD=$work/world2 FAKECUDA_REPORT=$work/report BENCH_MIB=32 BENCH_ROUNDS=1 \
	timeout -k 5 120 "$build/tests/gpu/bench-gpu" >"$work/output" 2>&1 || complain "bench-gpu with the stand-in driver: $?"
grep -q '^{"pinned_copy_gb_s": .*}$' "$work/output" || { cat "$work/output" && complain 'bench-gpu says nothing'; }

# A folder with a driver that is none, before whatever else this machine has.
answer=$(LD_LIBRARY_PATH=$(realpath "$build/tests/oldcuda") timeout -k 5 60 "$program" 2>&1)
status=$?
[ $status = 77 ] || complain "with a driver that cannot be used: $status and not 77"
[[ $answer == *'too old'* ]] || complain "it does not say why it skips: $answer"

# And the command that people type: a skip is no failure there, and its reason is said.
for kind in check bench; do
	answer=$(LD_LIBRARY_PATH=$(realpath "$build/tests/oldcuda") BUILD=$build timeout -k 5 60 bash tests/gpu/run.sh $kind 2>&1)
	status=$?
	[ $status = 77 ] || complain "make $kind-gpu with a driver that cannot be used: $status and not 77"
	[[ $answer == *'too old'*"$kind-gpu: skipped: "* ]] || complain "make $kind-gpu does not say why it skips: $answer"
done

# A manager that is asked for a size says why it does not start, and what would; with auto it goes on in RAM.
"$build/cnre-gen" --family olmoe --out "$work/model" --layers 2 --experts 8 --top-k 2 --hidden 64 --intermediate 64 --vocab 128 --seed 1 \
	>/dev/null || complain 'no checkpoint'
manager=("$build/cnre-managerd" --model "$work/model" --ram 1M --socket "$work/socket")
for size in 0 1G; do
	for check in '' --check; do
		# shellcheck disable=SC2086 # one word, or none
		answer=$(LD_LIBRARY_PATH=$(realpath "$build/tests/oldcuda") timeout -k 5 60 "${manager[@]}" --vram $size $check 2>&1 </dev/null)
		status=$?
		[ $status = 1 ] || complain "--vram $size $check with a driver that cannot be used: $status"
		[[ $answer == *'--vram: '*'too old'*'; --vram auto starts without'* ]] || complain "--vram $size $check: $answer"
	done
done
answer=$(LD_LIBRARY_PATH=$(realpath "$build/tests/oldcuda") timeout -k 5 60 "${manager[@]}" --vram auto --check 2>&1 </dev/null) ||
	complain "--vram auto with a driver that cannot be used: $?"
[[ $answer == *'vram     none: '*'too old'* && $answer != *'starts without'* ]] || complain "--vram auto: $answer"
exit $failed
