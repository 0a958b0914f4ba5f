#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The public header compiles by itself as C11 and C++11 with every warning on, and every other header stands alone, but for
# those that are the body of other files. make check-header runs it in the root of the tree.
set -u
cd "$(dirname "$0")/.." || exit 1
cc=${CC:-cc}
cxx=${CXX:-g++}
bad=0
complain() { echo "$1" && bad=1; }

# Standard input goes to the compiler. Not to be called in a pipe: there bad would be set in a shell of its own, and lost.
try() # name command...
{
	local output name=$1
	shift
	output=$("$@" 2>&1) || complain "$name: $output"
}

# Text that only these files include, each after it has defined what the text is made of.
body='manager/settings_table.h  manager/settings.c
engine/kernel_rows.h      engine/kernel_avx2.c engine/kernel_avx512.c
engine/kernel_rows16.h    engine/kernel_avx2.c engine/kernel_avx512.c
kvstore/checker_body.h    kvstore/checker_avx2.c kvstore/checker_plain.c'

# 0: it is such a text, and included where it may be.
is_body() # header
{
	local header files found
	while read -r header files; do
		[ "$header" = "$1" ] || continue
		found=$(grep -rlF "#include \"$header\"" --include='*.[ch]' base shm policy model gpu kvstore manager client engine tools tests | sort | xargs)
		[ "$found" = "$files" ] || complain "$header: included by \"$found\", and not by \"$files\" alone"
		return 0
	done <<<"$body"
	return 1
}

strict='-fsyntax-only -Wall -Wextra -Wpedantic -Werror -Iclient'
# shellcheck disable=SC2086 # a list of options
{
	try 'cnre.h as C11' "$cc" -x c -std=c11 $strict -Wstrict-prototypes client/cnre/cnre.h
	command -v "$cxx" >/dev/null || complain "no C++ compiler ($cxx): cnre.h was not tried as C++11"
	try 'cnre.h as C++11' "$cxx" -x c++ -std=c++11 $strict client/cnre/cnre.h
}

count=0
while read -r header; do
	is_body "$header" && continue
	count=$((count + 1))
	try "$header alone, and twice" "$cc" -x c -std=c11 -D_GNU_SOURCE -I. -Iclient -Wall -Wextra -Werror -fsyntax-only - \
		<<<"#include \"$header\"
#include \"$header\""
done < <(find base shm policy model gpu kvstore manager client engine tools tests -path tests/lint/fixtures -prune -o -name '*.h' -print | sort)
[ $count -gt 0 ] || complain 'no headers here'

# What uses the driver's interface compiles without the Toolkit, too; the build itself takes its header where it is.
for file in gpu/*.c tests/standin/fakecuda/*.c; do
	[ -e "$file" ] || continue
	try "$file without <cuda.h>" "$cc" -std=c11 -D_GNU_SOURCE -DCNRE_OWN_CUDA_API -I. -Iclient -Wall -Wextra -Werror -fsyntax-only "$file"
done
[ $bad = 0 ] && echo "$count headers"
exit $bad
