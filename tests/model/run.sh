#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the models of the protocol exhaustively with spin: tests/model/run.sh [MODEL...].
#
# The comment at the top of each model lists its runs: `good FLAGS text` must have no error, `mutant M_NAME KIND FLAGS text`
# must fail in the named way: assert (an assertion) or stuck (somebody waits for ever). One line for each run. The last line is
# "N passed, N failed". Exit status 0 all passed, 1 one did not, 77 spin or gcc is missing, 2 no such model.
# doc/protocol.md says what each model proves about which code.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd) || exit 1
limit=120               # seconds: one run, with as many beside it as there are processors
memory=4096             # MiB: one run
depth=1000000           # steps: longest path; beyond it a run would not be exhaustive, so it fails

for program in spin gcc; do
	command -v $program >/dev/null || { echo "$program is not installed: apt-get install $program"; exit 77; }
done
for name in "$@"; do
	[ -f "$here/$name.pml" ] || { echo "run.sh: no model $name: $(cd "$here" && echo ./*.pml)" >&2; exit 2; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-model-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0

# Leaves what happened in `found`: good, assert, stuck, or a word that no run expects.
verify() # model flags...
{
	local model=$1
	shift
	found=broken
	rm -f pan pan.* ./*.trail
	spin -a "$@" "$here/$model.pml" >spin.out 2>&1 && [ -f pan.c ] || { cat spin.out; return; }
	gcc -O1 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=1024 -DMEMLIM=$memory -o pan pan.c >gcc.out 2>&1 || { cat gcc.out; return; }
	timeout $limit ./pan -m$depth >pan.out 2>&1
	case $? in
	124 | 137) found=timeout ;;
	*)
		if grep -q 'max search depth too small\|memory limit\|out of memory\|VECTORSZ' pan.out; then
			found=incomplete
		elif grep -q '^pan:1: assertion violated' pan.out; then
			found=assert
		elif grep -q '^pan:1: invalid end state' pan.out; then
			found=stuck
		elif grep -q 'errors: 0$' pan.out; then
			found=good
		fi
		;;
	esac
}

# `-` stands for no flags: every line has the same columns.
one() # model kind flags... -- text
{
	local model=$1 kind=$2 flags=() start=$SECONDS states verdict
	shift 2
	while [ "$1" != -- ]; do
		[ "$1" = - ] || flags+=("$1")
		shift
	done
	shift
	verify "$model" "${flags[@]}"
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out 2>/dev/null | head -n 1)
	if [ $found = "$kind" ]; then
		passed=$((passed + 1)) verdict=passed
	else
		failed=$((failed + 1)) verdict="FAILED, it was $found:"
	fi
	printf '%-8s %-6s %9s states %2d s %s %s: %s\n' "$model" "$kind" "${states:-0}" $((SECONDS - start)) "$verdict" "${flags[*]:-as written}" "$*"
}

all_of() # model
{
	local model=$1 line words kind flags
	while read -r line; do
		read -ra words <<<"$line"
		set -- "${words[@]:1}"
		if [ "${words[0]}" = good ]; then
			kind=good flags=()
		else
			kind=$2 flags=("-D$1")
			shift 2
		fi
		while [ $# -gt 0 ] && [ "${1:0:1}" = - ]; do
			flags+=("$1")
			shift
		done
		one "$model" "$kind" "${flags[@]}" -- "$@"
	done < <(sed -n '1,/\*\//s/^ \* \(\(good\|mutant\) .*\)/\1/p' "$here/$model.pml")
}

# Several at once, each by a run of this script, and said in their order.
beside_each_other() # model...
{
	local model line
	printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c '"$0" "$1" >"$2/$1.said" 2>&1' "$here/run.sh" {} "$work"
	for model; do
		line=$(tail -n 1 "$model.said")
		if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
			sed '$d' "$model.said"
			passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
		else
			cat "$model.said"
			echo "$model: its run ended without a count" && failed=$((failed + 1))
		fi
	done
}

[ $# -gt 0 ] || set -- wait ring start reserve bell lease dma admit arena double # the long ones first
if [ $# = 1 ]; then
	all_of "$1"
else
	beside_each_other "$@"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
