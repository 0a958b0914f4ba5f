#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Case A8: no key is read by nobody. Every setting that --help names is given in a file, on the command line and, where it has
# one, in its variable: status shows the value and where it came from, and what is in force; a name with one wrong letter is
# refused with the right one, wherever it stands. Exit status 0 passed, 1 failed, 77 a program is missing.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
for program in cnre-managerd cnrectl cnre-gen; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done
command -v jq >/dev/null || { echo 'jq is not installed'; exit 77; }
# The GPU is the one that the driver of the tests plays.
[ -e "$build/tests/fakecuda/libcuda.so.1" ] || { echo 'make tests builds the driver that VRAM is asked with'; exit 77; }
export FAKECUDA_UUIDS=GPU-00112233-4455-6677-8899-aabbccddeeff

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=1
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
close_test()
{
	compare_close
	rm -rf "$work"
}
trap close_test EXIT
for name in $(compgen -v | grep '^CNRE_'); do
	unset "$name"
done
export XDG_RUNTIME_DIR=$work/runtime

failures=0
failed() { echo "FAILED: $1" && failures=$((failures + 1)); }
stop() { echo "FAILED: $1"; exit 1; }

make_checkpoint --layers 2 --experts 8 --top-k 2 --hidden 64 --intermediate 64 --vocab 128 --seed 1 || stop "$reason"
cp -r "$checkpoint" "$work/mirror"
mkdir "$work/more" "$work/usage" "$work/kv" "$work/runtime" && chmod 700 "$work/runtime"
printf '0 1\n1 2\n' >"$work/list"

# Every setting with a value that is not its default, and goes with all others.
cat >"$work/values" <<END
model $checkpoint
view rows16
ram 512K
private-bytes 1M
try-view rows16
mirror $work/mirror
dir $work/more
family $work/family.ini
socket $work/other.sock
socket-mode 0600
socket-group $(id -gn)
metrics unix:$work/metrics.sock
policy lfu
client-policy own
pool global
usage $work/usage
warm $work/list
warm-bytes 2M
warm-time 40s
hugepages 4k
numa local
io pool
direct no
verify load
digests $work/digests
scrub 5m
reads-in-flight 3
read-timeout 20s
drive-weights 2:1
kv-ram 16M
kv-dir $work/kv
kv-disk 64M
kv-staging 32M
kv-blocks 100
kv-allow team=user:root
vram 64M
vram-devices $FAKECUDA_UUIDS
vram-reserve 32M
vram-staging 32M
vram-trust group
clients-max 20
idle-exit 2h
keeper no
log-level notice
config $work/config
colibri-env yes
END
cp doc/family.ini "$work/family.ini"
questions=' check version help ' # answered, and nothing is served

names=$("$build/cnre-managerd" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p')
for name in $names; do
	[[ $questions == *" $name "* ]] || grep -q "^$name " "$work/values" || failed "--$name is documented and not tried here"
done
value_of() { sed -n "s|^$1 ||p" "$work/values"; }
variable_of() { "$build/cnre-managerd" --help | sed -n "/^  --$1\( \|\$\)/{n; s/.* Environment: \([A-Z_]*\)\..*/\1/p}"; }

# Starts it with arguments and waits; status is in $work/status.
serve() # socket arguments...
{
	local path=$1 try
	shift
	LD_LIBRARY_PATH=$build/tests/fakecuda "$build/cnre-managerd" "$@" >"$work/out" 2>"$work/log" &
	manager=$!
	for ((try = 0; try < 300; try++)); do
		! "$build/cnrectl" --socket "$path" status --json >"$work/status" 2>/dev/null || return 0
		kill -0 "$manager" 2>/dev/null || break
		sleep 0.1
	done
	failed "does not serve with $*: $(tail -n 2 "$work/log")"
	return 1
}
shown() { jq -r --arg name "$1" --arg key "$2" '.settings[] | select(.name == $name) | .[$key]' "$work/status"; }
expect() # name value source
{
	[ "$(shown "$1" value)" = "$2" ] || failed "status shows $1 = $(shown "$1" value), not $2"
	[ "$(shown "$1" source)" = "$3" ] || failed "status shows $1 from $(shown "$1" source), not $3"
}

# ---- all in one file; what cannot stand there is refused there ----
grep -v '^config \|^colibri-env ' "$work/values" | sed 's/ / = /' >"$work/config"
if serve "$work/other.sock" --config "$work/config" --colibri-env; then
	line=0
	while read -r name equals value; do
		line=$((line + 1))
		expect "$name" "$value" "config file, line $line"
	done <"$work/config"
	expect config "$work/config" 'command line'
	expect colibri-env yes 'command line'
	[ "$(jq '.settings | length' "$work/status")" = "$(wc -l <"$work/values")" ] || failed 'status shows a setting that --help does not name, or not all'
	# Honoured where that can be looked at from outside.
	[ "$(stat -c %a "$work/other.sock")" = 600 ] || failed "socket-mode: $(stat -c %a "$work/other.sock")"
	[ -S "$work/metrics.sock" ] || failed 'metrics: nobody listens'
	for pair in policy=lfu pool=global io=pool hugepages=4k reads-in-flight=3 clients-max=20 keeper=no ram=512K kv-ram=16M drive-weights=2:1 direct=no vram=64M; do
		[ "$(shown "${pair%=*}" in_force)" = "${pair#*=}" ] || failed "in force is ${pair%=*} = $(shown "${pair%=*}" in_force)"
	done
	[ "$(jq -r '[.models[].name, .policy, .loader.engine, .kv.enabled, (.mirrors | length)] | join(" ")' "$work/status")" = "checkpoint checkpoint:rows16 lfu pread true 1" ] ||
		failed "in force: $(jq -c '[.models[].name, .policy, .loader.engine, .kv.enabled, (.mirrors | length)]' "$work/status")"
	"$build/cnrectl" --socket "$work/other.sock" set ram 384K >/dev/null && "$build/cnrectl" --socket "$work/other.sock" status --json >"$work/status"
	expect ram 512K 'config file, line 3'
	[ "$(shown ram by)" = cnrectl ] || failed "after set ram: $(shown ram in_force) by $(shown ram by)"
	"$build/cnrectl" --socket "$work/other.sock" set vram 16M >/dev/null && "$build/cnrectl" --socket "$work/other.sock" status --json >"$work/status"
	[ "$(shown vram in_force), $(shown vram by)" = '16.0 MiB on 1 GPUs, cnrectl' ] || failed "after set vram: $(shown vram in_force) by $(shown vram by)"
	stop_manager || failed "$reason"
fi
for name in config colibri-env check version help; do
	printf '%s = 1\n' $name >"$work/bad"
	timeout 20 "$build/cnre-managerd" --model "$checkpoint" --config "$work/bad" >"$work/out" 2>&1
	[ $? = 2 ] && grep -q "$work/bad:1: $name: only on the command line" "$work/out" || failed "$name in a file: $(tail -n 1 "$work/out")"
done

# ---- all on the command line, over a file that says otherwise ----
arguments=()
while read -r name value; do
	[ "$name" = colibri-env ] || arguments+=("--$name" "$value")
done <"$work/values"
printf 'ram = 6M\nlog-level = debug\n' >"$work/config"
if serve "$work/other.sock" "${arguments[@]}" --colibri-env; then
	while read -r name value; do
		expect "$name" "$value" 'command line'
	done <"$work/values"
	stop_manager || failed "$reason"
fi

# ---- each in its variable ----
count=0
while read -r name value; do
	variable=$(variable_of "$name")
	[ -n "$variable" ] || continue
	count=$((count + 1))
	[ "$name" = colibri-env ] && export "$variable=1" || export "$variable=$value"
done <"$work/values"
[ $count -ge 14 ] || failed "only $count settings have variables"
if serve "$work/managerd.sock" --model "$checkpoint" --socket "$work/managerd.sock" --hugepages 4k; then
	while read -r name value; do
		variable=$(variable_of "$name")
		[ -n "$variable" ] || continue
		[ "$name" = colibri-env ] && value=1
		expect "$name" "$value" "environment $variable"
	done <"$work/values"
	stop_manager || failed "$reason"
fi
for name in $(compgen -v | grep '^CNRE_'); do
	unset "$name"
done

# ---- none: defaults, and what the manager found out ----
if serve "$work/managerd.sock" --model "$checkpoint" --socket "$work/managerd.sock"; then
	for name in ram io hugepages reads-in-flight; do
		[ "$(shown $name source)" = default ] && [ "$(shown $name by)" = measured ] && [ "$(shown $name in_force)" != "$(shown $name value)" ] ||
			failed "$name by itself: $(jq -c --arg name $name '.settings[] | select(.name == $name)' "$work/status")"
	done
	stop_manager || failed "$reason"
fi

# ---- one wrong letter, wherever it stands ----
for name in $names; do
	[ ${#name} -gt 4 ] || continue # too near to others
	wrong=${name:0:2}x${name:3}
	[ "$wrong" != "$name" ] || wrong=${name:0:2}y${name:3}
	timeout 20 "$build/cnre-managerd" --model "$checkpoint" "--$wrong" 1 >"$work/out" 2>&1
	[ $? = 2 ] && [ "$(grep -c . "$work/out")" = 1 ] && grep -q -- "--$wrong: no such setting; did you mean --[a-z-]*? See --help" "$work/out" ||
		failed "--$wrong: $(cat "$work/out")"
	grep -q -- "did you mean --$name?" "$work/out" || failed "--$wrong: not nearest to $name: $(cat "$work/out")"
	printf '\n%s = 1\n' "$wrong" >"$work/bad"
	timeout 20 "$build/cnre-managerd" --model "$checkpoint" --config "$work/bad" >"$work/out" 2>&1
	[ $? = 2 ] && grep -q "$work/bad:2: $wrong: no such setting; did you mean $name?" "$work/out" || failed "$wrong in a file: $(cat "$work/out")"
done

[ $failures = 0 ] && echo "settings: $(wc -l <"$work/values") are honoured and shown with their source, $count of them by variables; what nobody knows is refused"
exit $((failures > 0))
