# SPDX-License-Identifier: Apache-2.0
# The order of the includes at the head of a file: first the header that declares what the file defines, which proves that
# this header stands alone, and an empty line; then ours, then the system's; each of these sorted. Includes further down (tables, generated code) are not looked at.

function complain(what) { print FILENAME ":" FNR ": " what; bad = 1 }

FNR == 1 {
	own = FILENAME
	sub(/\.c$/, ".h", own)
	count = 0; last_ours = ""; last_system = ""; ended = 0; in_comment = 0
}
ended { next }
in_comment { if (/\*\//) in_comment = 0; next }
/^[ \t]*\/\*/ { if (!/\*\//) in_comment = 1; next }
# One include by itself at the top is the header of this file's functions, whatever its name.
/^[ \t]*$/ { if (count == 1) last_ours = ""; next }
/^#(ifndef|define) CNRE_[A-Z_]+_H$/ || /^#define [A-Z_]+$/ { next }
/^#[ \t]*include/ {
	name = $0
	sub(/^#[ \t]*include[ \t]*["<]/, "", name)
	sub(/[">].*/, "", name)
	if (/</) {
		if (last_system != "" && name < last_system) complain("<" name "> stands after <" last_system ">")
		last_system = name
	} else {
		if (last_system != "") complain("\"" name "\" stands after <" last_system ">")
		if (name == own && count > 0) complain("the own header \"" name "\" is not the first include")
		if (last_ours != "" && name < last_ours) complain("\"" name "\" stands after \"" last_ours "\"")
		last_ours = name
	}
	count++
	next
}
{ ended = 1 }
END { exit bad }
