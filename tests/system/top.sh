#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cnre-top against a real manager: one screen as text, a recording and what is played of it, and the terminal itself through tmux.
# Exit status 0 passed, 1 failed, 77 a program is missing. Needs the programs in $BUILD, and tmux for its last part.
set -u
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
for program in cnre-managerd cnre-top cnre-gen cnre-olmoe; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=8
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
on_tmux() { env -u TMUX tmux -f /dev/null -S "$work/tmux" "$@"; }
close_test()
{
	on_tmux kill-server 2>/dev/null
	compare_close
	rm -rf "$work"
}
trap close_test EXIT
unset CNRE_SOCKET

failures=0
failed() # what
{
	echo "FAILED: $1"
	sed 's/^/    | /' "$work/out" "$work/err"
	failures=$((failures + 1))
}
top() # status arguments...
{
	local status
	timeout 60 "$build/cnre-top" "${@:2}" >"$work/out" 2>"$work/err" </dev/null
	status=$?
	[ $status = "$1" ] || failed "cnre-top ${*:2}: exit status $status, not $1"
}
expect() { grep -qE -e "$1" "$work/out" || failed "no $1"; }
expect_complaint() { grep -qE -e "$1" "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] || failed "no single line with $1 on standard error"; }

top 2 --nonsense
top 1 --once --socket "$socket"
expect_complaint "^cnre-top: $socket: no socket there"
top 1 --once --play /dev/null
expect_complaint 'is no recording'

make_checkpoint --layers 2 --experts 16 --top-k 2 --hidden 64 --intermediate 64 --vocab 512 --seed 1 || { echo "$reason"; exit 1; }
start_manager 64M || { echo "$reason"; exit 1; }
run_engines engine 1 --cache cnre --socket "$socket" || { echo "$reason"; exit 1; }

top 0 --once --socket "$socket" --interval 0.2
expect '^cnre-top  checkpoint  policy cost'
expect '^memory +[0-9.]+ [KM]iB of [0-9.]+ [KM]iB \([0-9.]+ %\), [1-9][0-9]* experts resident'
expect '^ *> +0 +[1-9][0-9]*/16 +.*[1-9]'
expect '^DRIVES 1'
[ "$(wc -l <"$work/out")" = 24 ] && [ "$(wc -L <"$work/out")" -le 80 ] || failed 'not 24 lines of 80'
top 0 --once --socket "$socket" --interval 0.2 --size 60x12
[ "$(wc -l <"$work/out")" = 12 ] && [ "$(wc -L <"$work/out")" -le 60 ] || failed 'not 12 lines of 60'
top 1 --once --socket "$socket" --model other
expect_complaint 'no such model'
top 1 --socket "$socket"
expect_complaint '--once prints one screen'

top 0 --once --socket "$socket" --interval 0.2 --record "$work/recording"
mv "$work/out" "$work/shown"
[ "$(wc -l <"$work/recording")" = 3 ] || failed 'a recording of two samples has no three lines'
top 1 --once --socket "$socket" --record "$work/recording"
expect_complaint 'never written over'
stop_manager || failed "$reason"
top 0 --once --play "$work/recording"
diff "$work/shown" "$work/out" >/dev/null || failed 'what is played is not what was shown'
head -c -20 "$work/recording" >"$work/cut"
top 1 --once --play "$work/cut"
expect_complaint 'line 3'

# Keys, in colours, on what was recorded.
screen_shows() # expression
{
	local i
	for ((i = 0; i < 200; i++)); do
		on_tmux capture-pane -p -t top >"$work/out" 2>/dev/null
		! grep -qE -e "$1" "$work/out" || return 0
		sleep 0.05
	done
	failed "the terminal does not show $1"
}
press() { on_tmux send-keys -t top "$1"; }
if command -v tmux >/dev/null; then
	on_tmux new-session -d -x 90 -y 30 -s top \
		"TERM=screen-256color '$build/cnre-top' --play '$work/recording' 2>'$work/err'; echo \"ended \$?\"; read -r line"
	screen_shows '^> +0 .*/16 '
	press j
	screen_shows '^> +1 .*/16 '
	press z
	screen_shows '^LAYER 1: [0-9]+ of 16 experts resident'
	press h
	screen_shows '^KEYS'
	press h
	press s
	screen_shows '^CLIENTS .* by lookups'
	press f
	screen_shows '^cnre-top .* FROZEN'
	press f
	screen_shows '^the recording is over: q ends'
	press q
	screen_shows '^ended 0$'
fi

# The terminal, at 80x24, by the script that makes doc/cnre-top.txt.
if command -v tmux >/dev/null; then
	timeout 120 bash tools/top/screenshot.sh >"$work/out" 2>"$work/err" </dev/null || failed 'no screenshot'
	expect '^cnre-top  checkpoint  policy cost'
	expect '^CLIENTS 1 '
	expect '^h help'
	# The same first words on each line as in the document, but for numbers.
	diff <(cut -c1-6 doc/cnre-top.txt | tr -d '0-9> ' | sed -n '1,6p;$p') <(cut -c1-6 "$work/out" | tr -d '0-9> ' | sed -n '1,6p;$p') >/dev/null ||
		failed 'doc/cnre-top.txt is of another cnre-top: tools/top/screenshot.sh >doc/cnre-top.txt'
else
	echo 'tmux is not installed: the terminal was not looked at'
fi

[ $failures = 0 ] && echo 'cnre-top: a screen, a recording and a terminal show what the manager says'
exit $((failures > 0))
