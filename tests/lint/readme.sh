#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the documents name exists. In README.md: each file and function of the table under "The path of one request", and
# each path of the table under "Where things are". In doc/*.md: every `folder/file.c` and `folder/file.h`.
# Run in the root of a tree.
set -u
bad=0
complain() { echo "$1" && bad=1; }

section() { awk -v title="$1" '/^## / {inside = index($0, title) > 0} inside' README.md; }

rows=0
while IFS='|' read -r _ step file function _; do
	[[ $step =~ [0-9] ]] || continue
	rows=$((rows + 1))
	file=$(tr -d '` ' <<<"$file")
	[ -f "$file" ] || { complain "README.md: step$step: $file does not exist" && continue; }
	for name in $(grep -oE '`[a-z_0-9]+`' <<<"$function" | tr -d '`'); do
		# A definition or declaration: the name, a parenthesis, not only inside a comment.
		grep -vE '^[ \t]*(/?\*|\*)' "$file" | grep -qE "\b${name}[ \t]*\(" ||
			complain "README.md: step$step: no function $name in $file"
	done
done < <(section 'The path of one request' | grep '^|')
[ $rows -ge 5 ] || complain "README.md: the table of the path of one request has $rows rows"

for path in $(section 'Where things are' | grep -oE '`[a-z][a-z_/.0-9]*[a-z/]`' | tr -d '`'); do
	case $path in
	*/*) [ -e "$path" ] || complain "README.md: $path does not exist" ;;
	esac
done
for document in doc/*.md; do
	[ -e "$document" ] || continue
	for path in $(grep -oE '`[a-z]+(/[a-z_0-9]+)+\.(c|h|def|sh|pml)`' "$document" | tr -d '`' | sort -u); do
		[ -e "$path" ] || complain "$document: $path does not exist"
	done
done
exit $bad
