#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The answers of cnrectl --json are what its manual says, both ways: every key that a verb gives stands in section JSON of
# doc/man/cnrectl.1 with its types, and every key that stands there is given by some answer here. Keys that need a fault or
# another machine's file are marked with a + there, and need not come. Exit status 0 passed, 1 failed, 77 a program is missing.
# tests/system/json.sh --list DIR leaves the answers there, and prints the keys as the manual has them.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
for program in cnre-managerd cnrectl cnre-gen cnre-olmoe; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done
command -v jq >/dev/null || { echo 'jq is not installed'; exit 77; }

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=8
served=
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
close_test()
{
	[ -z "$served" ] || { kill "$served" && wait "$served"; } 2>/dev/null
	compare_close
	rm -rf "$work"
}
trap close_test EXIT
unset CNRE_SOCKET CNRE_RAM CNRE_POLICY
export XDG_RUNTIME_DIR=$work/runtime

failures=0
failed() { echo "FAILED: $1" && failures=$((failures + 1)); }
stop() { echo "FAILED: $1"; exit 1; }

answers=$work/answers
mkdir "$answers"
count=0
ask() # verb words...: the answer is one of this verb's
{
	count=$((count + 1))
	if ! timeout 120 "$build/cnrectl" --socket "$socket" --json "$@" >"$answers/$1.$count" 2>"$work/err"; then
		failed "cnrectl $*: $(cat "$work/err")"
		rm "$answers/$1.$count"
	fi
}

# ---- a manager that has something of everything ----
make_checkpoint --layers 3 --experts 16 --top-k 4 --hidden 128 --intermediate 256 --vocab 512 --seed 1 --shard-bytes 1M || stop "$reason"
mirror=$work/mirror
cp -r "$checkpoint" "$mirror"
shard=$(ls "$mirror"/*.safetensors | sed -n 2p)
dd if=/dev/urandom of="$shard" bs=64K seek=2 count=10 conv=notrunc status=none # a copy that is refused
mkdir "$work/usage" "$work/kv"
export COLI_MODEL_DIRS=$work/none
start_manager $((checkpoint_bytes / 2)) --hugepages 4k --mirror "$mirror" --kv-ram 64M --kv-dir "$work/kv" --usage "$work/usage" --view rows16 || stop "$reason"
unset COLI_MODEL_DIRS

ask trace status
ask trace record "$work/run.trace" --model checkpoint
run_engines first 1 --cache cnre --socket "$socket" || stop "$reason"
mkfifo "$work/requests"
timeout 200 "$build/cnre-olmoe" --model "$checkpoint" --socket "$socket" --serve --kv cnre --threads 1 --name served <"$work/requests" >"$work/served.out" 2>"$work/served.err" &
served=$!
exec {requests}>"$work/requests"
prompt=$(seq 1 300 | tr '\n' ' ')
echo "generate 1 8 $prompt" >&"$requests"
wait_for() # verb jq-condition
{
	local try
	for ((try = 0; try < 300; try++)); do
		"$build/cnrectl" --socket "$socket" "$1" --json | jq -e "$2" >/dev/null && return
		sleep 0.1
	done
	failed "$1: never $2"
}
wait_for kv '[.namespaces[].prefixes | length] | add > 0'
echo "generate 2 8 $prompt" >&"$requests" # finds what the first one computed
wait_for stats '.kv_avoided_ns > 0'
echo "generate 3 3000 7 8 9" >&"$requests" # while others look
for words in 'explain --seconds 0.5' top stats clients layers drives kv 'experts --model checkpoint' 'experts 0 --model checkpoint' 'trace status' 'trace stop' \
	usage "usage export $work/uses --model checkpoint" "usage import $work/uses --model checkpoint" usage warm "warm $work/uses --bytes 1M --model checkpoint" warm \
	"inspect $checkpoint" "iobench $checkpoint --block=64K --seconds=0.2"; do
	# shellcheck disable=SC2086 # words
	ask $words
done
for policy in lfu cost; do # some experts are there, and some are not; each policy has its own facts
	ask policy $policy
	for ((expert = 0; expert < 16; expert++)); do
		ask why 1 $expert --model checkpoint
	done
done
key=$("$build/cnrectl" --socket "$socket" kv --json | jq -r '[.namespaces[].prefixes[].key][0]')
ask kv export "$key" "$work/prefix"
ask kv import "$work/prefix" --namespace shared
said=$("$build/cnrectl" --socket "$socket" kv --json | jq '[.namespaces[].time_avoided_s] | add * 1e9 | round')
counted=$("$build/cnrectl" --socket "$socket" stats --json | jq .kv_avoided_ns)
[ "$said" = "$counted" ] || failed "namespaces avoided $said ns, and $counted were counted"
ask set ram $((checkpoint_bytes / 3))
ask set kv-ram 48M
ask reset
wait_for status '.mirrors[0].refusals | length > 0'
ask status
exec {requests}>&-
wait "$served"
served=
ask stats
stop_manager || failed "$reason"

# Without a store of prefixes, and before anything happened.
start_manager $((checkpoint_bytes / 2)) || stop "$reason"
for words in status kv clients stats layers drives usage warm 'trace status' 'why 1 1'; do
	# shellcheck disable=SC2086 # words
	ask $words
done
stop_manager || failed "$reason"

# With a GPU, which the driver of the tests plays; nobody has it open.
if [ -e "$build/tests/fakecuda/libcuda.so.1" ]; then
	LD_LIBRARY_PATH=$build/tests/fakecuda start_manager $((checkpoint_bytes / 2)) --vram 64M --vram-reserve 32M || stop "$reason"
	for words in status clients 'why 1 1' 'experts 0' experts 'explain --seconds 0.1' 'set vram 32M'; do
		# shellcheck disable=SC2086 # words
		ask $words
	done
	stop_manager || failed "$reason"
else
	echo 'make tests builds the driver that VRAM is asked with'
	exit 77
fi

# ---- what was given: "verb key types", a line each; what status says of a store and a warm list is as of kv and warm ----
given()
{
	local file verb
	for file in "$answers"/*; do
		verb=${file##*/}
		jq -r --arg verb "${verb%.*}" '. as $all | paths as $path |
			[$verb, ($path | map(if type == "number" then "[]" else "." + . end) | join("") | ltrimstr(".")), ($path as $at | $all | getpath($at) | type)] |
			select(.[1] | endswith("[]") | not) | join(" ")' "$file"
	done | sed 's/^status warm\./warm /; s/^status kv\.disk\./kv disk./' | sort -u | awk '{key = $1 " " $2; types[key] = types[key] == "" ? $3 : types[key] "|" $3} END {for (key in types) print key, types[key]}' | sort
}

# ---- what is documented, in the same form; counters stand in the page that is made from their table ----
documented()
{
	{
		sed -n 's/^\.It Va \([a-z_0-9]*\) .*/stats \1 number/p' "$build/cnre-counters.7"
		awk '/^\.Sh / {inside = $2 == "JSON"} inside && /^\.Ss / {verb = $2} inside && /^\.It Va / {print verb, $3, $5}' doc/man/cnrectl.1
	} | sort
}

given >"$work/given"
documented >"$work/all"
if [ "${1:-}" = --list ]; then
	cp -r "$answers" "$2"
	cat "$work/given"
	exit 0
fi
sed 's/+$//' "$work/all" >"$work/documented"
[ -s "$work/documented" ] || stop 'doc/man/cnrectl.1 has no section JSON'
[ -z "$(cut -d' ' -f1,2 "$work/documented" | uniq -d)" ] || failed "documented twice: $(cut -d' ' -f1,2 "$work/documented" | uniq -d | tr '\n' ';')"
while read -r verb key types; do
	may=$(awk -v verb="$verb" -v key="$key" '$1 == verb && $2 == key {print $3}' "$work/documented")
	[ -n "$may" ] || { failed "cnrectl $verb --json gives $key, which doc/man/cnrectl.1 does not know"; continue; }
	for type in ${types//|/ }; do
		[[ "|$may|" == *"|$type|"* ]] || failed "cnrectl $verb --json: $key is a $type, and documented as $may"
	done
done <"$work/given"
while read -r verb key types; do
	case $types in
	*+) continue ;;
	esac
	awk -v verb="$verb" -v key="$key" '$1 == verb && $2 == key {found = 1} END {exit !found}' "$work/given" ||
		failed "doc/man/cnrectl.1 has $key of $verb, which no answer gave"
done <"$work/all"
for verb in $("$build/cnrectl" --help | sed -n 's/^  \([a-z]\{2,\}\) .*/\1/p'); do
	grep -q "^$verb " "$work/documented" || failed "doc/man/cnrectl.1 has no JSON of $verb"
	grep -q "^$verb " "$work/given" || failed "$verb was not asked"
done

[ $failures = 0 ] && echo "json: $(wc -l <"$work/given") keys of $(cut -d' ' -f1 "$work/given" | uniq | wc -l) verbs are as the manual says"
exit $((failures > 0))
