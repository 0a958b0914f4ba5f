#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tries each lint on trees that it must refuse, with the message that it must give, and on one that it must accept.
# tests/lint/fixtures/ holds them: an "expect" file or comment is a regular expression, or the word nothing.
set -u
lints=$(cd "$(dirname "$0")" && pwd)
fixtures=$lints/fixtures
bad=0 tried=0

expect() # what expression status output
{
	tried=$((tried + 1))
	if [ "$2" = nothing ]; then
		[ "$3" = 0 ] || { echo "$1: refused a good one: $4" && bad=1; }
	elif [ "$3" = 0 ] || ! grep -qE -- "$2" <<<"$4"; then
		echo "$1: did not say \"$2\" (status $3): $4"
		bad=1
	fi
}

trees() # lint command...
{
	local tree output status
	for tree in "$fixtures/$1"/*/; do
		output=$(cd "$tree" && "${@:2}" 2>&1)
		status=$?
		expect "$1/$(basename "$tree")" "$(cat "$tree/expect")" $status "$output"
	done
}

trees layers "$lints/layers.sh"
trees readme "$lints/readme.sh"

for lint in atomics includes; do
	for file in "$fixtures/$lint"/*.c; do
		output=$(cd "$fixtures/$lint" && LC_ALL=C awk -f "$lints/$lint.awk" "$(basename "$file")" 2>&1)
		status=$?
		expect "$lint/$(basename "$file")" "$(sed -n 's|^/\* expect: \(.*\) \*/$|\1|p' "$file")" $status "$output"
	done
done
output=$(cd "$fixtures/atomics" && awk -f "$lints/atomics.awk" one/writer.c two/reader.c 2>&1)
status=$?
expect 'atomics/a pair across folders' nothing $status "$output"
output=$(cd "$fixtures/atomics" && awk -f "$lints/atomics.awk" one/writer.c 2>&1)
status=$?
expect 'atomics/half a pair across folders' 'does not exist in two/reader.c' $status "$output"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for folder in shm manager; do
	mkdir -p "$work/obj/$folder"
	for file in "$fixtures/names/$folder"/*.c; do
		${CC:-cc} -c -o "$work/obj/$folder/$(basename "$file" .c).o" "$file"
	done
done
output=$("$lints/names.sh" "$work" 2>&1)
status=$?
expect 'names/shm' 'ring_pop does not begin with cnre_' $status "$output"
expect 'names/manager' 'submit_all begins with no module of manager/' $status "$output"
rm "$work/obj/shm/ring.o" "$work/obj/manager/loader_uring.o"
output=$("$lints/names.sh" "$work" 2>&1)
status=$?
expect 'names/empty' nothing $status "$output"

# The ABI's three lists, each with one name too few.
printf 'int cnre_open(void);\nint cnre_close(void); /* not cnre_gone() */\n' >"$work/both.h"
printf 'int cnre_open(void);\n' >"$work/one.h"
printf 'CNRE_0.1 {\n\tglobal:\n\t\tcnre_open;\n\t\tcnre_close;\n\tlocal:\n\t\t*;\n};\n' >"$work/both.map"
printf 'CNRE_0.1 {\n\tglobal:\n\t\tcnre_open;\n\tlocal:\n\t\t*;\n};\n' >"$work/one.map"
printf '#include "both.h"\nint cnre_open(void) {return 0;}\nint cnre_close(void) {return 0;}\n' >"$work/library.c"
library() { ${CC:-cc} -shared -fPIC "${@:2}" -o "$work/$1.so" "$work/library.c"; }
library both -Wl,--version-script,"$work/both.map"
library one -Wl,--version-script,"$work/one.map"
library hidden -fvisibility=hidden -Wl,--version-script,"$work/both.map"
abi() { "$lints/abi.sh" "$work/$1.h" "$work/$2.map" "$work/$3.so" 2>&1; }
output=$(abi both both both)
status=$?
expect 'abi/good' nothing $status "$output"
output=$(abi one both both)
status=$?
expect 'abi/undeclared' 'not declared in cnre.h: cnre_close' $status "$output"
output=$(abi both one one)
status=$?
expect 'abi/unexported' 'declared in cnre.h, not exported by the library: cnre_close' $status "$output"
output=$(abi both both hidden)
status=$?
expect 'abi/hidden' 'in the version script, not exported by the library: cnre_close cnre_open' $status "$output"

# A program with two probes, a page of them, and pages that are wrong.
printf '#include "base/probe.h"\nint main(int n, char **v) {(void)v; CNRE_PROBE(admit, n + 0u, n + 1u, n + 2u, 3u);\nCNRE_PROBE(kv_match, n + 0u, n + 1u, n + 2u, n + 3ull); return 0;}\n' >"$work/probed.c"
${CC:-cc} -std=gnu11 -I"$lints/../.." -o "$work/probed" "$work/probed.c" "$lints/../../base/probe.c"
probed() # a line of the subsection Library
{
	printf '.Ss Manager\n.It Fn admit "u32 a" "u32 b" "u32 c" "u32 d"\n.It Fn kv_match "u32 a" "u32 b" "u32 c" "u64 d"\n.Ss Library\n.It Fn admit "u32 a" "u32 b" "u32 c" "u32 d"\n%s\n' "$1" >"$work/probes.7"
	"$lints/probes.sh" "$work/probes.7" "$work/probes.def" "$work/probed" "$work/probed" 2>&1
}
printf 'CNRE_PROBE_NAME(%s)\n' 'admit, 4' 'admit, 4' 'kv_match, 4' 'kv_match, 4' >"$work/probes.def"
output=$(probed '.It Fn kv_match "u32 a" "u32 b" "u32 c" "u64 d"')
status=$?
expect 'probes/good' nothing $status "$output"
output=$(probed '')
status=$?
expect 'probes/undocumented' 'nothing under Library about kv_match' $status "$output"
output=$(probed '.It Fn kv_match "u32 a" "u32 b" "u32 c"')
status=$?
expect 'probes/too few arguments' 'kv_match is "kv_match u32 u32 u32", but "kv_match u32 u32 u32 u64"' $status "$output"
output=$(probed '.It Fn kv_match "u32 a" "u32 b" "u64 c" "u64 d"')
status=$?
expect 'probes/another type' 'kv_match is "kv_match u32 u32 u64 u64", but' $status "$output"
output=$(probed '.It Fn kv_lost "u32 a"')
status=$?
expect 'probes/not there' 'kv_lost is not in ' $status "$output"

# Written here so that these marks stand in no file.
mkdir "$work/marks"
marks() { printf '%s\n' "$1" >"$work/marks/file.c" && (cd "$work/marks" && "$lints/marks.sh" 2>&1); }
output=$(marks "/* TO""DO: later */")
status=$?
expect 'marks/to do' 'mark unfinished work XXX' $status "$output"
output=$(marks "char *p = \"/ho""me/somebody/model\";")
status=$?
expect 'marks/path' 'path of one machine' $status "$output"
output=$(marks '/* XXX: one drive only. */')
status=$?
expect 'marks/counted' nothing $status "$output"
expect 'marks/count' '^1 unfinished' 1 "$output"

if command -v mandoc >/dev/null; then
	printf '.Dd November 29, 2026\n.Dt X 1\n.Os\n.Sh NAME\n.Nm x\n.Nd y\n.Bl -tag\n.It a\n' >"$work/bad.1"
	output=$("$lints/manuals.sh" "$work/bad.1" 2>&1)
	status=$?
	expect 'manuals/unclosed list' 'missing end of block' $status "$output"
	printf '.Dd November 29, 2026\n.Dt CNRE_X 3\n.Os\n.Sh NAME\n.Nm cnre_x ,\n.Nm cnre_y\n.Nd z\n.Sh SEE ALSO\n.Xr cnre_y 3\n' >"$work/own.3"
	output=$("$lints/manuals.sh" "$work/own.3" 2>&1)
	status=$?
	expect 'manuals/page by another name' nothing $status "$output"
	printf '.Xr cnre_y 7\n' >>"$work/own.3"
	output=$("$lints/manuals.sh" "$work/own.3" 2>&1)
	status=$?
	expect 'manuals/no such page' 'refers to cnre_y\(7\), which does not exist' $status "$output"
fi
if command -v systemd-analyze >/dev/null; then
	mkdir "$work/units"
	printf '[Unit]\nDescription=x\n[Service]\nExecStart=@sbindir@/x\nLimitMEMLOK=1\n' >"$work/units/x.service.in"
	output=$("$lints/units.sh" "$work/units" 2>&1)
	status=$?
	expect 'units/unknown key' 'LimitMEMLOK' $status "$output"
	printf '[Unit]\nDescription=x\n[Service]\nExecStart=@sbindir@/x\n' >"$work/units/x.service.in"
	output=$("$lints/units.sh" "$work/units" 2>&1)
	status=$?
	expect 'units/not confined' 'exposure level' $status "$output"
fi

[ $bad = 0 ] && echo "$tried cases"
exit $bad
