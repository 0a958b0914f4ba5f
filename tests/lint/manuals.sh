#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages: mandoc's errors fail, its warnings are shown; cnrectl's verbs, and the options of the manager, of
# cnre-sim, cnre-gen, cnre-olmoe, cnre-route, cnre-top and cnre-inspect, all stand in their pages. tests/lint/manuals.sh PAGE..., in the root of a tree.
set -u
command -v mandoc >/dev/null || { echo 'mandoc is not installed' && exit 77; }
bad=0
for page; do
	found=$(mandoc -T lint -W style "$page" | grep -vE 'missing manual|referenced manual not found|outdated mandoc.db|Mdocdate|operating system explicitly')
	[ -z "$found" ] || echo "$found"
	! grep -qE ': (ERROR|UNSUPP|BADARG|SYSERR)' <<<"$found" || bad=1
done

has() # page macro name...
{
	local page=$1 macro=$2 name
	shift 2
	[ -e "$page" ] || return
	for name; do
		grep -qE "^\.It.* $macro $name( |\$)" "$page" || { echo "$page: nothing about $name" && bad=1; }
	done
}
# Pages of ours that others refer to: those given, under every name that they have.
named=$(for page; do sed -n "s/^\.Nm \([a-z_-]*\).*/\1 ${page##*.}/p" "$page"; done)
for page; do
	while read -r other section; do
		grep -qxF "$other $section" <<<"$named" || { echo "$page: refers to $other($section), which does not exist" && bad=1; }
	done < <(sed -n 's/^\.Xr \(cnre[a-z_-]*\|libcnre\) \([1-8]\).*/\1 \2/p' "$page")
done
# shellcheck disable=SC2046 # words
{
	has doc/man/cnre-managerd.8 Fl $(sed -n 's/^SETTING("\([a-z-]*\)", \([A-Z]*\),.*/\2 -\1/p' manager/settings_table.h | sed -n '/^LATER/!s/^[A-Z]* //p')
	has doc/man/cnre-sim.1 Fl $(sed -n 's/^\t[A-Z]*_ROW("\([a-z-]*\)", .*/-\1/p' tools/sim/options.c)
	has doc/man/cnre-gen.1 Fl $(sed -n 's/^\t{"\([a-z-]*\)", [a-z_]*argument,.*/-\1/p' tools/gen/options.c)
	has doc/man/cnre-top.1 Fl $(sed -n 's/^\t{"\([a-z-]*\)", [a-z_]*argument,.*/-\1/p' tools/top/options.c)
	has doc/man/cnre-inspect.8 Fl $(sed -n 's/^\t{"\([a-z-]*\)", [a-z_]*argument,.*/-\1/p' tools/inspect/options.c)
	has doc/man/cnre-inspect.8 Cm $(sed -n 's/^\t\.name = "\([a-z]*\)",$/\1/p' tools/inspect/*.c)
	has doc/man/cnre-route.1 Fl $(sed -n 's/^\t{"\([a-z-]*\)", [a-z_]*argument,.*/-\1/p' tools/route/options.c)
	has doc/man/cnre-olmoe.1 Fl $(sed -n 's/^\t{"\([a-z-]*\)", [a-z_]*argument,.*/-\1/p' engine/options.c)
	has doc/man/cnrectl.1 Cm $(sed -n 's/^\t\.name = "\([a-z]*\)",$/\1/p' tools/ctl/*.c)
}
exit $bad
