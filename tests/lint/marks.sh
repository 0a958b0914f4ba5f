#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unfinished work is marked XXX with a sentence and counted; other marks are refused, so that the count is true. Also
# refused: paths of one person's machine, and e-mail addresses. tests/lint/marks.sh, in the root of a tree.
set -u
bad=0
files=$(git ls-files --cached --others --exclude-standard 2>/dev/null)
[ -n "$files" ] || files=$(find . -type f ! -path './build/*' ! -path './.git/*' | sed 's|^\./||')
files=$(grep -vE '^(tests/lint/|LICENSE$)' <<<"$files" | grep -E '(\.(c|h|sh|awk|def|md|in|conf|map|pml|[1-8])|Makefile|/run)$' |
	while read -r file; do [ -f "$file" ] && echo "$file"; done)

# shellcheck disable=SC2086 # names without spaces, one a word
look() # text expression
{
	local found
	found=$(grep -nE "$2" $files /dev/null)
	[ -z "$found" ] || { sed "s/^/$1: /" <<<"$found" && bad=1; }
}
look 'mark unfinished work XXX' '\b(TO[D]O|FIX[M]E|HA[C]K|TB[D])\b'
look 'path of one machine' '(^|[^a-zA-Z0-9_.])/(home/[a-z]|root/|work/|farm/|Users/)'
look 'e-mail address' '[a-z0-9._]+@[a-z0-9-]+\.(com|org|net|io|de)\b'

# shellcheck disable=SC2086
unfinished=$(grep -hE '\bXXX\b' $files /dev/null | wc -l)
# shellcheck disable=SC2046
lines=$(cat $(grep -E '\.[ch]$' <<<"$files") /dev/null | wc -l)
echo "$unfinished unfinished (XXX) in $lines lines of C"
exit $bad
