# SPDX-License-Identifier: Apache-2.0
# Makes the manual page cnre-counters.7 from shm/counters.def: name, kind, unit, one sentence for each counter. A line of
# the table that does not have this form fails the build, so that no counter is left out of the page.

BEGIN {
	print ".\\\" Made from shm/counters.def by doc/counters.awk; edit those."
	print ".Dd November 29, 2026\n.Dt CNRE-COUNTERS 7\n.Os"
	print ".Sh NAME\n.Nm cnre-counters\n.Nd what the counters of cnre-managerd mean"
	print ".Sh DESCRIPTION"
	print "The manager keeps these counters in a shared memory segment, 64 bits each."
	print "Its core thread is their only writer; readers take no lock,\nso two of them may be one event apart."
	print ".Pp"
	print "A counter only grows while the manager lives and is never reset:\ntake differences."
	print "A gauge is a level and may fall."
	print ".Ql cnrectl stats\nshows all of them under these names,\n.Ql cnrectl stats --json\nas one object."
	print ".Pp"
	print "These hold whenever nothing is in flight: accesses = hits + misses;"
	print "joins are part of misses; resident = loaded \\(mi evicted bytes."
	print "Divide felt wait and service time by what they are sums over:\nmisses and loads."
	print ".Bl -tag -width Ds"
}

/^CNRE_COUNTER\(/ {
	if (!match($0, /^CNRE_COUNTER\([a-z_0-9]+, (COUNTER|GAUGE), "[a-z]+", ".+\."\)$/)) {
		print FILENAME ":" FNR ": not CNRE_COUNTER(name, COUNTER or GAUGE, \"unit\", \"Sentence.\")" > "/dev/stderr"
		failed = 1
		exit 1
	}
	line = $0
	sub(/^CNRE_COUNTER\(/, "", line)
	name = line; sub(/,.*/, "", name)
	kind = line; sub(/^[^,]*, /, "", kind); sub(/,.*/, "", kind)
	unit = line; sub(/^[^"]*"/, "", unit); sub(/".*/, "", unit)
	text = line; sub(/^[^"]*"[^"]*", "/, "", text); sub(/"\)$/, "", text)
	gsub(/\\/, "\\e", text)
	print ".It Va " name " Pq " tolower(kind) ", " unit
	print text
	count++
}

END {
	if (failed || count == 0)
		exit 1
	print ".El"
	print ".Sh SEE ALSO\n.Xr cnrectl 1 ,\n.Xr cnre-managerd 8"
}
