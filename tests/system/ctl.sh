#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cnrectl against a real manager: every verb, exit codes, finding the socket, and watching across a restart. Exit status
# 0 passed, 1 failed, 77 a program is missing. Needs the programs in $BUILD only.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
for program in cnre-managerd cnrectl cnre-gen cnre-olmoe; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=2
watcher=
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
close_test()
{
	[ -z "$watcher" ] || kill "$watcher" 2>/dev/null
	compare_close
	rm -rf "$work"
}
trap close_test EXIT
unset CNRE_SOCKET
export XDG_RUNTIME_DIR=$work/runtime

failures=0
failed() # what
{
	echo "FAILED: $1"
	sed 's/^/    | /' "$work/out" "$work/err"
	failures=$((failures + 1))
}

# Runs cnrectl; out and err are kept. Fails unless the status is as expected.
ctl() # status arguments...
{
	local status
	"$build/cnrectl" "${@:2}" >"$work/out" 2>"$work/err"
	status=$?
	[ $status = "$1" ] || failed "cnrectl ${*:2}: exit status $status, not $1"
}
expect() { grep -qE "$1" "$work/out" || failed "no $1"; }
expect_complaint() { grep -qE "$1" "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] || failed "no single line with $1 on standard error"; }

ctl 1 --socket "$socket" status
expect_complaint "^cnrectl: status: $socket: no socket there: start cnre-managerd"
ctl 2 nonsense
ctl 2 set ram lots

ctl 2 iobench
ctl 2 iobench / --block 5000
ctl 1 iobench "$work/none"
expect_complaint "^cnrectl: iobench: $work/none: No such file"

make_checkpoint --layers 2 --experts 16 --top-k 2 --hidden 64 --intermediate 64 --vocab 512 --seed 1 || { echo "$reason"; exit 1; }
ctl 0 iobench "$checkpoint" --block 4K --threads 2 --seconds 0.2
expect '^for cnre-managerd: --direct (auto|no) --reads-in-flight 2$'
ctl 0 iobench --json "$checkpoint" --block=4K --seconds=0.2
expect '^\{.*"measurements":\[\{.*\}$'
start_manager 64M || { echo "$reason"; exit 1; }

ctl 0 --socket "$socket" status
expect '^manager +[0-9]'
expect '^(health +good|DEGRADED)'
expect '^ +> '
expect '^pressure +(not )?watched: .'
ctl 0 --socket "$socket" --json status
expect '^\{.*"models":\[\{.*\}$'
[ "$(wc -l <"$work/out")" = 1 ] || failed 'status --json is not one line'

run_engines engine 1 --cache cnre --socket "$socket" || { echo "$reason"; exit 1; }
ctl 0 stats --socket "$socket" --json
for counter in accesses hits misses loads joins bytes_read resident_bytes budget_bytes evictions felt_wait_s service_s; do
	expect "\"$counter\":[0-9]"
done
[ "$(number loads <"$work/out")" -gt 0 ] || failed 'an engine ran and nothing was loaded'
ctl 0 stats --socket "$socket"
expect '^lookups +[1-9]'
ctl 0 clients --socket "$socket"
expect '^no clients$'

ctl 0 layers --socket "$socket"
expect '^LAYER +MISSES +JOINS'
ctl 0 top --socket "$socket"
expect '^lookups +[0-9.]+/s'
[ "$(wc -l <"$work/out")" -le 24 ] || failed 'top does not fit on a terminal of 24 lines'
[ "$(wc -L <"$work/out")" -le 80 ] || failed 'top does not fit on a terminal of 80 columns'
# On a terminal it goes on until it is interrupted.
if command -v script >/dev/null; then
	script -qec "timeout -s INT 10 '$build/cnrectl' --socket '$socket' top --watch 0.5" /dev/null </dev/null >"$work/screens" 2>&1
	[ "$(grep -c '^lookups\|H.*lookups' "$work/screens")" -ge 2 ] || failed "top was shown $(grep -c lookups "$work/screens") times on a terminal"
	script -qec "timeout -s INT 10 '$build/cnrectl' --socket '$socket' top" /dev/null </dev/null >"$work/screens" 2>&1
	[ "$(grep -c lookups "$work/screens")" -ge 2 ] || failed "top was shown $(grep -c lookups "$work/screens") times on a terminal, without --watch"
fi

ctl 0 reset --socket "$socket"
expect '^[1-9][0-9]* experts evicted, 0 kept'
ctl 0 set ram 32M --socket "$socket"
expect '^budget '
ctl 0 stats --json --socket "$socket"
[ "$(number budget_bytes <"$work/out")" -le $((32 << 20)) ] || failed 'set ram 32M: the budget is larger'
ctl 1 set ram 1 --socket "$socket"
expect_complaint '^cnrectl: set: '

# The variable, then the user's folder: one manager is found, the variable is never second-guessed.
CNRE_SOCKET=$socket ctl 0 status
CNRE_SOCKET=$work/none.sock ctl 1 status
mkdir -p "$XDG_RUNTIME_DIR/cnre" && chmod 700 "$XDG_RUNTIME_DIR/cnre"
if [ ! -e /run/cnre/managerd.sock ] && [ ! -e "/run/user/$(id -u)/cnre" ] && [ ! -e "/tmp/cnre-$(id -u)" ]; then
	ln -s "$socket" "$XDG_RUNTIME_DIR/cnre/a.sock"
	ctl 0 status
	expect '^manager '
	ln -s "$socket" "$XDG_RUNTIME_DIR/cnre/b.sock"
	ctl 1 status
	expect_complaint '2 managers answer .*choose one with --socket'
fi

# A watcher goes on across a restart and ends with 0 at ^C. Its output comes through a pipe: nothing waits by sleeping.
mkfifo "$work/lines"
"$build/cnrectl" --socket "$socket" --json --watch 0.1 stats >"$work/lines" 2>"$work/err" &
watcher=$!
exec {lines}<"$work/lines"
read -r -t 20 -u "$lines" line && [[ $line == \{* ]] || failed 'watch: no first line'
stop_manager || failed "$reason"
start_manager 64M || { echo "$reason"; exit 1; }
# Only the new manager has done nothing yet.
while read -r -t 20 -u "$lines" line && [ "$(number loads <<<"$line")" != 0 ]; do :; done
[ "$(number loads <<<"$line")" = 0 ] || failed 'watch: nothing after the restart'
kill -INT "$watcher"
wait "$watcher" || failed "watch: exit status $? after SIGINT"
watcher=
stop_manager || failed "$reason"

[ $failures = 0 ] && echo 'cnrectl: every verb answers, refuses and is found as documented'
exit $((failures > 0))
