#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The public header compiles by itself as C11 and C++11 with every warning on, and every other header stands alone.
# make check-header runs it in the root of the tree.
set -u
cd "$(dirname "$0")/.." || exit 1
cc=${CC:-cc}
cxx=${CXX:-g++}
bad=0

try() # name command...
{
	local output name=$1
	shift
	output=$("$@" 2>&1) || { echo "$name: $output" && bad=1; }
}

strict='-fsyntax-only -Wall -Wextra -Wpedantic -Werror -Iclient'
# shellcheck disable=SC2086 # a list of options
{
	try 'cnre.h as C11' "$cc" -x c -std=c11 $strict -Wstrict-prototypes client/cnre/cnre.h
	command -v "$cxx" >/dev/null || { echo "no C++ compiler ($cxx): cnre.h was not tried as C++11" && bad=1; }
	try 'cnre.h as C++11' "$cxx" -x c++ -std=c++11 $strict client/cnre/cnre.h
}

count=0
while read -r header; do
	count=$((count + 1))
	printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
		try "$header alone, and twice" "$cc" -x c -std=c11 -D_GNU_SOURCE -I. -Iclient -Wall -Wextra -Werror -fsyntax-only -
done < <(find base shm policy model manager client engine tools tests/support -name '*.h' 2>/dev/null | sort)
[ $bad = 0 ] && echo "$count headers"
exit $bad
