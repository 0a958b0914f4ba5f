#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The three lists of libcnre's functions are one: what cnre.h declares, what the version script exports, what the library
# defines. With -fvisibility=hidden, or with a name missing in the script, a library exports less without any message.
# tests/lint/abi.sh HEADER MAP LIBRARY
set -u
header=$1 map=$2 library=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Declarations: comments off, then every name before a parenthesis that begins with cnre_.
sed -e ':a' -e 's|/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/||g' -e '/\/\*/{N;ba' -e '}' "$header" |
	grep -oE '\bcnre_[a-z_0-9]+[ \t]*\(' | tr -d ' \t(' | sort -u >"$work/declared"
sed -n '/global:/,/local:/p' "$map" | grep -oE '\bcnre_[a-z_0-9]+' | sort -u >"$work/mapped"
nm -D --defined-only --format=posix "$library" | awk '$2 == "T" {sub(/@.*/, "", $1); print $1}' | sort -u >"$work/exported"

bad=0
differ() # left right text
{
	local names
	names=$(comm -23 "$work/$1" "$work/$2" | tr '\n' ' ')
	[ -z "$names" ] || { echo "$3: $names" && bad=1; }
}
differ mapped exported 'in the version script, not exported by the library'
differ exported mapped 'exported by the library, not in the version script'
differ exported declared 'exported by the library, not declared in cnre.h'
differ declared exported 'declared in cnre.h, not exported by the library'
exit $bad
