#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A screen of cnre-top as a person sees it, without colours: an engine generates tokens beside a manager with too little memory
# for all experts, tmux shows cnre-top at 80x24, and what stands there is printed. tools/top/screenshot.sh [>doc/cnre-top.txt],
# in the root of a tree that is built. Exit status 0 done, 1 failed, 77 tmux is missing.
set -u
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
command -v tmux >/dev/null || { echo 'tmux is not installed' && exit 77; }

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=4000
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
engine_pid=
on_tmux() { env -u TMUX tmux -f /dev/null -S "$work/tmux" "$@"; }
close_all()
{
	on_tmux kill-server 2>/dev/null
	[ -z "$engine_pid" ] || kill "$engine_pid" 2>/dev/null
	compare_close
	rm -rf "$work"
}
trap close_all EXIT
unset CNRE_SOCKET

give_up() { echo "screenshot: $1" >&2 && exit 1; }

make_checkpoint --layers 8 --experts 56 --top-k 4 --hidden 128 --intermediate 256 --vocab 512 --seed 1 || give_up "$reason"
start_manager 24M || give_up "$reason"
"$build/cnre-olmoe" --model "$checkpoint" --tokens '95 28 14' --steps $steps --cache cnre --socket "$socket" --name engine \
	>"$work/engine.log" 2>&1 &
engine_pid=$!
on_tmux new-session -d -x 80 -y 24 -s top \
	"TERM=screen exec '$build/cnre-top' --socket '$socket' --interval 0.5 --no-color 2>'$work/top.err'" || give_up 'tmux does not start'

# Until rates are there and something was used: a screen with neither tells nothing.
for ((i = 0; i < 200; i++)); do
	on_tmux capture-pane -p -t top >"$work/screen" 2>/dev/null || break
	if grep -qE '^tokens +[1-9]' "$work/screen" && grep -qE '^.+/56 .*[1-9]' "$work/screen"; then
		cat "$work/screen"
		exit 0
	fi
	sleep 0.1
done
give_up "cnre-top showed nothing: $(last_line "$work/top.err") $(last_line "$work/engine.log")"
