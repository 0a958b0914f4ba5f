# SPDX-License-Identifier: Apache-2.0
# Makes the manual page cnre-counters.7 from shm/counters.def and doc/counters.families: name, kind, unit, one sentence for
# each counter; the identities as the table's head has them; and metrics with labels. A line of the table that does not have
# this form fails the build, so that no counter is left out of the page.

function fail(what)
{
	print FILENAME ":" FNR ": not " what > "/dev/stderr"
	failed = 1
	exit 1
}

function shown(text)
{
	gsub(/\\/, "\\e", text)
	gsub(/ - /, " \\(mi ", text)
	return text
}

BEGIN {
	print ".\\\" Made from shm/counters.def and doc/counters.families by doc/counters.awk; edit those."
	print ".Dd November 30, 2026\n.Dt CNRE-COUNTERS 7\n.Os"
	print ".Sh NAME\n.Nm cnre-counters\n.Nd what the counters of cnre-managerd mean"
	print ".Sh DESCRIPTION"
	print "The manager keeps these counters in a shared memory segment, 64 bits each."
	print "Its core thread is their only writer; readers take no lock,\nso two of them may be one event apart."
	print "They go on over a restart of the manager."
	print "Lookups cost nothing to count: they stand in the ledgers of clients, which are\nadded up when somebody asks."
	print ".Pp"
	print "A counter only grows while the manager lives and is never reset:\ntake differences."
	print "A gauge is a level and may fall."
	print ".Ql cnrectl stats\nshows all of them under these names,\n.Ql cnrectl stats --json\nas one object, and"
	print ".Ql cnrectl layers ,\n.Ql clients\nand\n.Ql drives\nshow what is counted by layer, client and drive."
	print ".Pp"
	print "Divide felt wait and service time by what they are sums over:\nmisses and loads."
}

# The head of the table: identities are its lines that begin with three blanks.
FILENAME ~ /counters\.def$/ && /^ \*   / {
	identity[++identities] = shown(substr($0, 6))
	next
}

/^CNRE_COUNTER\(/ {
	if (!match($0, /^CNRE_COUNTER\([a-z_0-9]+, (COUNTER|GAUGE), "[a-z]+", ".+\."\)$/))
		fail("CNRE_COUNTER(name, COUNTER or GAUGE, \"unit\", \"Sentence.\")")
	line = $0
	sub(/^CNRE_COUNTER\(/, "", line)
	name = line; sub(/,.*/, "", name)
	kind = line; sub(/^[^,]*, /, "", kind); sub(/,.*/, "", kind)
	unit = line; sub(/^[^"]*"/, "", unit); sub(/".*/, "", unit)
	text = line; sub(/^[^"]*"[^"]*", "/, "", text); sub(/"\)$/, "", text)
	if (count++ == 0) {
		print "These hold whenever nothing is in flight:"
		print ".Bd -unfilled -offset indent"
		for (i = 1; i <= identities; i++)
			print identity[i]
		print ".Ed"
		print ".Bl -tag -width Ds"
	}
	print ".It Va " name " Pq " tolower(kind) ", " unit
	print shown(text)
	next
}

FILENAME ~ /counters\.families$/ && FNR == 1 {
	print ".El"
	print ".Sh METRICS"
	print "With\n.Fl -metrics\nof\n.Xr cnre-managerd 8\neach counter is a family of its own without labels:"
	print ".Ql cnre_\nand its name, with the unit as the last word"
	print "(bytes_read is cnre_read_bytes_total, felt_wait_ns is cnre_felt_wait_seconds_total)."
	print "Beside them stand these, by their labels."
	print "Their number is bounded, whatever clients call themselves and however many layers\nmodels have."
	print "Those by model, layer and drive begin anew with each manager, those by client go on."
	print "A counter has\n.Ql _total\nbehind its name, and a histogram\n.Ql _bucket ,\n.Ql _sum\nand\n.Ql _count ."
}

FILENAME ~ /counters\.families$/ && /^= / {
	if (families > 0)
		print ".El"
	print ".Ss Labels: " shown(substr($0, 3))
	print ".Bl -tag -width Ds"
	families++
	next
}

FILENAME ~ /counters\.families$/ && !/^#/ {
	if (families == 0 || !match($0, /^cnre_[a-z_]+ (counter|gauge|histogram) .+\.$/))
		fail("`= labels` or `name type Sentence.`")
	text = $0
	sub(/^[^ ]* [^ ]* /, "", text)
	print ".It Li " $1 " Pq " $2
	print shown(text)
}

END {
	if (failed || count == 0 || families == 0)
		exit 1
	print ".El"
	print ".Sh SEE ALSO\n.Xr cnrectl 1 ,\n.Xr cnre-managerd 8"
}
