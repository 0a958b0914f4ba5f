#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Probes: the manual page, the notes in the built files and base/probes.def name the same ones, with as many arguments of the
# same types. tests/lint/probes.sh PAGE DEF MANAGER LIBRARY
set -u
export LC_ALL=C
page=$1 table=$2 manager=$3 library=$4
bad=0
complain() { echo "$1" && bad=1; }

for file in "$manager" "$library"; do
	[ -e "$file" ] || { echo "$file is not built"; exit 77; }
done

# "name type type ..." of one subsection.
documented() # subsection
{
	awk -v wanted="$1" '
		/^\.S[sh] / {inside = $1 == ".Ss" && $2 == wanted}
		inside && /^\.It Fn / {
			name = $3
			count = split($0, quoted, "\"")
			line = name
			for (i = 2; i <= count; i += 2) {split(quoted[i], word, " "); line = line " " word[1]}
			print line
		}' "$page" | sort
}

# The same of a file: operands are SIZE@WHERE, negative where signed. A constant is signed whatever its type.
built() # file
{
	readelf -n "$1" 2>/dev/null | awk '
		/Provider: / {ours = $2 == "cnre"}
		/Name: / {name = $2}
		/Semaphore: / && ours && $NF ~ /^0x0+$/ {print "no-semaphore " name}
		/Arguments:/ && ours {
			line = name
			for (i = 2; i <= NF; i++) {
				split($i, part, "@")
				type = (part[1] < 0 ? "s" : "u") (part[1] < 0 ? -part[1] : part[1]) * 8
				if (part[2] ~ /^\$/) type = "?" substr(type, 2)
				line = line " " type
			}
			print line
		}' | sort -u
}

# One site of a probe against its line in the manual.
agrees() # built documented
{
	local -a site manual
	local i
	read -ra site <<<"$1"
	read -ra manual <<<"$2"
	[ ${#site[@]} = ${#manual[@]} ] || return
	for ((i = 1; i < ${#site[@]}; i++)); do
		[ "${site[i]}" = "${manual[i]}" ] || [ "${site[i]}" = "?${manual[i]:1}" ] || return
	done
}

compare() # subsection file
{
	local name line manual sites
	manual=$(documented "$1") sites=$(built "$2")
	[ -n "$manual" ] || complain "$page: no probes under $1"
	while read -r line; do
		[[ $line != no-semaphore* ]] || { complain "$2: probe ${line#* } has no semaphore" && continue; }
		name=${line%% *}
		grep -q "^$name\( \|$\)" <<<"$manual" || { complain "$page: nothing under $1 about $name of $2" && continue; }
		agrees "$line" "$(grep "^$name\( \|$\)" <<<"$manual")" ||
			complain "$page: $name is \"$(grep "^$name\( \|$\)" <<<"$manual")\", but \"$line\" in $2"
	done <<<"$sites"
	while read -r name _; do
		grep -q "^$name\( \|$\)" <<<"$sites" ||
			complain "$page: $name is not in $2"
	done <<<"$manual"
}

compare Manager "$manager"
compare Library "$library"
listed=$(sed -n 's/^CNRE_PROBE_NAME(\([a-z_]*\), \([0-9]*\))$/\1 \2/p' "$table" | sort)
[ "$listed" = "$({ documented Manager; documented Library; } | awk '{print $1, NF - 1}' | sort)" ] ||
	complain "$page and $table do not list the same probes with as many arguments"
exit $bad
