#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make colibri: one object against the headers that the user names, and a clear word where they are not there or not what the
# store was written for. The headers are the tests' own (tests/support/colibri/).
set -u
cd "$(dirname "$0")/../.." || exit 1
make=${MAKE:-make}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
fail() { echo "$1" && bad=1; }

build() { "$make" --no-print-directory BUILD="$work/build" colibri COLIBRI_SRC="$1" >"$work/log" 2>&1; }
refused() # tree what-it-says name
{
	if build "$1"; then
		fail "$3: built"
	elif ! grep -qF -- "$2" "$work/log"; then
		fail "$3: did not say \"$2\": $(tail -n 5 "$work/log")"
	fi
}

build tests/support/colibri || fail "against the stand-in: $(cat "$work/log")"
object=$work/build/colibri/cnre_expert_store.o
# Of ours nothing is missing in it, so that libcnre and the engine's registry are all that it needs.
nm "$object" | grep ' U cnre_colibri' && fail 'not one object: the provider is missing in it'
nm "$object" | grep -q ' T cnre_colibri_register_store' || fail 'it registers nothing'

refused '' 'set COLIBRI_SRC' 'no tree'
mkdir -p "$work/empty" "$work/old/c" "$work/tree"
refused "$work/empty" 'no expert_store.h in' 'a folder without the headers'
cp tests/support/colibri/expert_store.h "$work/old/c/"
refused "$work/old" 'expert_store_registry.h' 'a tree from before the registry'

tree() # sed expression: the stand-in, with one header changed
{
	rm -rf "$work/tree" && cp -r tests/support/colibri "$work/tree"
	sed -i 's|"tests/support/colibri/|"|' "$work/tree"/*.h
	sed -i -E "$1" "$work/tree"/*.h
}
tree ''
build "$work/tree" || fail "against a copy of the stand-in: $(cat "$work/log")"
tree 's/^\tint \(\*emap\).*$//'
build "$work/tree" || fail "against a tree with five operations: $(cat "$work/log")"
tree 's/^\tvoid \(\*destroy\).*$/\tvoid (*destroy)(ColiExpertStore *store); int (*probe)(void);/'
build "$work/tree" || fail "against a tree with an operation more: $(cat "$work/log")"
tree '/\(\*destroy\)/d; s/^(\tint \(\*lookup\))/\tvoid (*destroy)(ColiExpertStore *store);\n\1/'
refused "$work/tree" 'operations are in another order' 'operations in another order'
tree 's/^\tvoid \*state;$//; s/^\tvoid \*gpu;$/\tvoid *gpu, *state;/'
refused "$work/tree" 'object begins otherwise' 'another store object'
tree 's/size_t data_bytes, scale_bytes/uint32_t data_bytes, scale_bytes/'
refused "$work/tree" 'fields of other sizes' 'other sizes in a view'
[ $bad = 0 ] && echo 'the expert store builds against a tree with the known headers, and refuses others'
exit $bad
