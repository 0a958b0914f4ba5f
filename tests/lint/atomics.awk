# SPDX-License-Identifier: Apache-2.0
# Every atomic operation carries a tag comment, and the tags tell the truth:
#
#	/* [P1] release, pairs with [C1]: slot contents before the new tail. */
#	atomic_store_explicit(&tail, value, memory_order_release);
#
# Run over all C files at once; the tags of a folder are one name space. A partner in another folder is looked up in the
# file that the comment, or an ordering map of the same folder, names beside the partner's tag ("[B2] in manager/bell.c").
# Fails on: an untagged atomic, a tag used twice in a folder, a non-relaxed atomic without partner, a partner that does
# not exist or does not name this tag back, a comment whose order is not the one in the code, an implicit order, a call
# that does not name its order, __atomic and __sync builtins.
# Beyond it: a bare ++ or = on an _Atomic object (the compiler's business), and what a wrapper macro hides.

function complain(where, what) { print where ": " what; bad = 1 }

function folder_of(file) { return file ~ /\// ? substr(file, 1, match(file, /\/[^\/]*$/) - 1) : "." }

# The path of a C file within text, or "".
function path_in(text) {
	return match(text, /[a-z_]+(\/[a-z_0-9]+)+\.[ch]/) ? substr(text, RSTART, RLENGTH) : ""
}

# Remembers which file an ordering map or a comment names beside each tag of one line.
function note_paths(text, path, rest) {
	path = path_in(text)
	if (path == "")
		return
	rest = text
	while (match(rest, /\[[A-Z]+[0-9]+\]/)) {
		named[folder, substr(rest, RSTART, RLENGTH)] = path
		rest = substr(rest, RSTART + RLENGTH)
	}
}

function begin_tag(text) {
	tag = ""
	if (match(text, /^[ \t]*\/\*[ \t]*\[[A-Z]+[0-9]+\]/)) {
		tag = substr(text, RSTART, RLENGTH)
		sub(/^[ \t]*\/\*[ \t]*/, "", tag)
	}
	comment = text
	tag_line = FNR
}

# The partners between "pairs with" and the colon that ends them.
function partners_of(text) {
	if (!match(text, /pairs with /))
		return ""
	text = substr(text, RSTART + RLENGTH)
	sub(/:.*/, "", text)
	return text
}

function order_said(text) {
	sub(/^[ \t]*\/\*[ \t]*\[[A-Z]+[0-9]+\][ \t]*/, "", text)
	return match(text, /^[a-z_]+/) ? substr(text, RSTART, RLENGTH) : ""
}

function define(here, code, said, key) {
	if (tag == "") {
		complain(here, "atomic without a tag comment directly above it")
		return
	}
	key = folder SUBSEP tag
	if (key in place)
		complain(here, "tag " tag " is used twice in " folder "/ (also " place[key] ")")
	said = order_said(comment)
	if (said != code)
		complain(here, "comment of " tag " says \"" said "\", the code \"" code "\"")
	place[key] = here
	partners[key] = partners_of(comment)
	order[key] = code
	if (code != "relaxed" && partners[key] !~ /\[/)
		complain(here, tag " is " code " and names no partner (\"pairs with [X1]\")")
	tag = ""
}

# A whole call, from its name to the parenthesis that closes it: perhaps of several lines.
function judge(call, here, code) {
	if (call !~ /^atomic_thread_fence/ && call !~ /^[a-z_]*_explicit[ \t]*\(/) {
		complain(here, "implicit seq_cst: use the _explicit form")
		tag = ""
		return
	}
	if (!match(call, /memory_order_[a-z_]+/)) {
		complain(here, "the call does not name its memory order")
		tag = ""
		return
	}
	code = substr(call, RSTART + 13, RLENGTH - 13)
	define(here, code)
}

function balance(text, n) { n = gsub(/\(/, "(", text); return n - gsub(/\)/, ")", text) }

FNR == 1 { folder = folder_of(FILENAME); in_comment = 0; tag = ""; gathering = 0; pending_call = "" }

# Comments: a block that begins with a tag belongs to the code right below it.
in_comment {
	note_paths($0)
	comment = comment " " $0
	if (/\*\//) in_comment = 0
	next
}
/^[ \t]*\/\*/ {
	note_paths($0)
	begin_tag($0)
	if (!/\*\//) in_comment = 1
	if (!/\*\/[ \t]*[^ \t]/) next
}

{
	line = $0
	gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
	gsub(/\/\*.*\*\//, "", line)
	here = FILENAME ":" FNR
}
line ~ /(^|[^a-zA-Z0-9_])__(atomic|sync)_[a-z]/ { complain(here, "__atomic and __sync builtins: use C11 atomics") }

gathering {
	pending_call = pending_call " " line
	depth += balance(line)
	if (depth <= 0) { gathering = 0; judge(pending_call, call_here) }
	if (gathering) next
	line = ""
}
{
	rest = line
	seen = 0
	while (match(rest, /(^|[^a-zA-Z0-9_])atomic_(load|store|exchange|fetch_[a-z]+|compare_exchange_(weak|strong)|thread_fence|signal_fence|flag_[a-z_]+)(_explicit)?[ \t]*\(/)) {
		rest = substr(rest, RSTART)
		sub(/^[^a]/, "", rest)
		# mawk and gawk agree on this: the call ends where its parentheses balance
		depth = 0; call_end = 0
		for (i = 1; i <= length(rest); i++) {
			c = substr(rest, i, 1)
			if (c == "(") depth++
			if (c == ")" && --depth == 0) { call_end = i; break }
		}
		if (call_end == 0) { gathering = 1; pending_call = rest; call_here = here; break }
		judge(substr(rest, 1, call_end), here)
		rest = substr(rest, call_end + 1)
		seen++
	}
	# A statement that ended without an atomic lets go of the comment above it.
	if (!seen && !gathering && line ~ /[;{}][ \t]*$/) tag = ""
}

END {
	for (key in place) {
		split(key, part, SUBSEP)
		rest = partners[key]
		while (match(rest, /\[[A-Z]+[0-9]+\]/)) {
			other = substr(rest, RSTART, RLENGTH)
			rest = substr(rest, RSTART + RLENGTH)
			where = part[1] SUBSEP other
			if (!(where in place) && (where in named))
				where = folder_of(named[where]) SUBSEP other
			if (!(where in place))
				complain(place[key], part[2] " pairs with " other ", which does not exist" \
					((part[1] SUBSEP other) in named ? " in " named[part[1], other] : " in " part[1] "/ (name its file if it is elsewhere)"))
			else if (index(partners[where], part[2]) == 0)
				complain(place[key], part[2] " pairs with " other " (" place[where] "), which does not name it back")
		}
	}
	exit bad
}
