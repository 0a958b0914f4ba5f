#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prefixes through a real manager: a second process copies what a first one computed, to the same tokens; nobody with
# another salt does; and cnre-route sends a request to the process that has its prefix. Exit status 0 passed, 1 failed, 77
# a program is missing, or this manager keeps no prefixes: then only the going on without is tested.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
for program in cnre-managerd cnre-gen cnre-olmoe cnre-route; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=8
servers=()
patience=100 # tenths of a second for what is handed over to be found
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
close_test()
{
	if [ ${#servers[@]} -gt 0 ]; then # a wait for none would wait for the manager
		kill "${servers[@]}" 2>/dev/null
		wait "${servers[@]}" 2>/dev/null
	fi
	compare_close
	rm -rf "$work"
}
trap close_test EXIT
unset CNRE_SOCKET
export XDG_RUNTIME_DIR=$work/runtime

failed() { echo "FAILED: $1" && exit 1; }

prompt=$(seq 1 300 | tr '\n' ' ')
engine() # arguments...
{
	timeout 60 "$build/cnre-olmoe" --model "$checkpoint" --socket "$socket" --tokens "$prompt" --steps $steps --json "$@" >"$work/out" 2>"$work/err" ||
		failed "cnre-olmoe $*: $(last_line "$work/err")"
}
same() { [ "$(token_list "$work/out")" = "$tokens" ] || failed "$1: other tokens"; }
matched() { number matched_tokens <"$work/out"; }

# Until a run matches so many tokens.
engine_until() # tokens arguments...
{
	local tried=0
	engine "${@:2}"
	while [ "$(matched)" != "$1" ] && [ $tried -lt $patience ]; do
		tried=$((tried + 1))
		sleep 0.1
		engine "${@:2}"
	done
	[ "$(matched)" = "$1" ] || failed "${*:2}: $(matched) tokens matched, not $1"
}

make_checkpoint --layers 3 --experts 16 --top-k 2 --hidden 64 --intermediate 64 --vocab 512 --seed 1 || { echo "$reason"; exit 1; }
manager_options=()
"$build/cnre-managerd" --help | grep -q -e --kv-ram && manager_options=(--kv-ram 64M)
start_manager 64M "${manager_options[@]}" || { echo "$reason"; exit 1; }

engine --kv none
tokens=$(token_list "$work/out")
[ -n "$tokens" ] || failed 'no tokens'
engine --kv cnre
same 'the first with --kv cnre'
if [ ${#manager_options[@]} = 0 ]; then
	grep -q '"store":"none"' "$work/out" || failed 'prefixes from a manager that has none'
	grep -q 'no prefixes from this manager' "$work/err" || failed 'nothing says that there are none'
	echo 'this manager keeps no prefixes'
	exit 77
fi

engine_until 299 --kv cnre
same 'a second process'
engine_until 299 --kv cnre --cache mmap
same 'another cache'
engine --kv cnre --salt pepper
[ "$(matched)" = 0 ] || failed "another salt: $(matched) tokens matched"
same 'another salt'

# ---- a front end ----

for name in left right; do
	timeout 120 "$build/cnre-olmoe" --model "$checkpoint" --socket "$socket" --kv cnre --salt route --name $name --serve \
		--listen "$work/$name" >"$work/$name.log" 2>&1 &
	servers+=($!)
	timeout 30 bash -c "until grep -q ready: '$work/$name.log'; do sleep 0.1; done" || failed "$name: $(last_line "$work/$name.log")"
done
route()
{
	timeout 60 "$build/cnre-route" --model "$checkpoint" --socket "$socket" --salt route left="$work/left" right="$work/right" >"$work/out" 2>"$work/err" ||
		failed "cnre-route: $(last_line "$work/err")"
}
# To right by its own door, so that the least busy engine, the first, is not the answer by accident.
printf 'generate a %d %s\n' $steps "$prompt" |
	timeout 60 "$build/cnre-route" --model "$checkpoint" --socket "$socket" --salt route right="$work/right" >"$work/out" 2>&1
same 'the first request of the front end'
for _ in $(seq $patience); do
	route <<<"generate b $steps $prompt"
	grep -q '"routed_by":"prefix"' "$work/out" && break
	sleep 0.1
done
grep -q '"engine":"right","routed_by":"prefix"' "$work/out" || failed "routed elsewhere: $(last_line "$work/out")"
[ "$(matched)" = 299 ] || failed "the front end: $(matched) tokens matched"
same 'a routed request'
route <<<"generate c $steps 7 7 7"
grep -q '"routed_by":"load"' "$work/out" || failed "an unknown prefix: $(last_line "$work/out")"
