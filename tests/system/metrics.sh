#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Metrics of a real manager: its text is what promtool takes for right, the identities hold in one scrape, slow scrapers hold up
# nobody, and a real Prometheus scrapes it and answers every query of the dashboard. Exit status 0 passed, 1 failed, 77 a
# program is missing. Listens on loopback only.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
for program in cnre-managerd cnrectl cnre-gen cnre-olmoe; do
	[ -x "$build/$program" ] || { echo "$build/$program is not built"; exit 77; }
done
for program in prometheus promtool curl jq; do
	command -v $program >/dev/null || { echo "$program is not installed"; exit 77; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/cnre-test-XXXXXX") || exit 1
steps=8
prometheus=
# shellcheck source=tools/demo/compare.sh
. tools/demo/compare.sh
close_test()
{
	[ -z "$prometheus" ] || kill "$prometheus" 2>/dev/null
	[ -z "$prometheus" ] || wait "$prometheus" 2>/dev/null
	compare_close
	rm -rf "$work"
}
trap close_test EXIT
unset CNRE_SOCKET CNRE_RAM CNRE_POLICY

failures=0
failed() # what
{
	echo "FAILED: $1"
	failures=$((failures + 1))
}
stop() { echo "FAILED: $1"; exit 1; }

# Sums over all series of a name in the last scrape.
sum_of() { awk -v name="$1" '{split($1, part, "{")} part[1] == name {sum += $NF; found = 1} END {printf found ? "%.9f" : "none", sum}' "$work/scrape"; }
same() # name what a b
{
	awk -v a="$3" -v b="$4" 'BEGIN {d = a - b; exit !(a != "none" && b != "none" && d < 1e-6 && d > -1e-6)}' || failed "$1: $2: $3 and $4"
}
scrape() { curl -sS --fail --max-time 30 "$@" >"$work/scrape" 2>"$work/curl.log"; }
scrape_tcp() { scrape "http://127.0.0.1:$port/metrics" "$@"; }

# Nobody listens there now; if somebody does when it is needed, the test says so.
free_port()
{
	local port try
	for ((try = 0; try < 50; try++)); do
		port=$((20000 + RANDOM % 10000))
		(: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo $port; return; }
	done
}

# ---- what is refused ----
for address in 0.0.0.0:9847 192.168.1.1:9847 localhost:9847 127.0.0.1 127.0.0.1:0 '[::]:9847' unix:relative; do
	timeout 20 "$build/cnre-managerd" --model "$work" --metrics "$address" >"$work/out" 2>&1
	status=$?
	[ $status = 2 ] && grep -q -- '--metrics: ' "$work/out" || failed "--metrics $address: exit status $status: $(last_line "$work/out")"
done

# ---- rules and their tests need no manager ----
promtool check rules tools/prometheus/cnre-alerts.yml >"$work/out" 2>&1 || failed "promtool check rules: $(cat "$work/out")"
(cd tests/system/prometheus && promtool test rules cnre-alerts-test.yml) >"$work/out" 2>&1 || failed "promtool test rules: $(cat "$work/out")"

# ---- a manager on loopback, and two engines with half of the experts resident ----
make_checkpoint --layers 4 --experts 16 --top-k 4 --hidden 128 --intermediate 256 --vocab 512 --seed 1 || stop "$reason"
port=$(free_port)
# The GPU is one that the driver of the tests plays, if `make tests` has built it; engines do not open it.
gpu=()
[ ! -e "$build/tests/fakecuda/libcuda.so.1" ] || gpu=(--vram 64M --vram-reserve 32M)
LD_LIBRARY_PATH=$build/tests/fakecuda start_manager $((checkpoint_bytes / 2)) --metrics "127.0.0.1:$port" "${gpu[@]}" || stop "$reason"
run_engines engine 2 --cache cnre --socket "$socket" || stop "$reason"

check_identities() # when
{
	same "$1" 'hits + misses = accesses' "$(calculate "$(sum_of cnre_hits_total) + $(sum_of cnre_misses_total)")" "$(sum_of cnre_accesses_total)"
	same "$1" 'bytes of drives = total' "$(awk "BEGIN {printf \"%.0f\", $(sum_of cnre_drive_read_bytes_total) + $(sum_of cnre_read_before_restart_bytes)}")" "$(sum_of cnre_read_bytes_total)"
	same "$1" 'resident = loaded - evicted' "$(awk "BEGIN {printf \"%.0f\", $(sum_of cnre_loaded_bytes_total) - $(sum_of cnre_evicted_bytes_total)}")" "$(sum_of cnre_resident_bytes)"
	same "$1" 'accesses of clients = all' "$(sum_of cnre_client_accesses_total)" "$(sum_of cnre_accesses_total)"
	same "$1" 'misses of clients = all' "$(sum_of cnre_client_misses_total)" "$(sum_of cnre_misses_total)"
	same "$1" 'accesses of tiers = all' "$(sum_of cnre_tier_accesses_total)" "$(sum_of cnre_accesses_total)"
	same "$1" 'admissions = loads' "$(sum_of cnre_admissions_total)" "$(sum_of cnre_loads_total)"
	same "$1" 'admissions = evictions + residents' "$(sum_of cnre_admissions_total)" "$(calculate "$(sum_of cnre_evictions_total) + $(sum_of cnre_resident_objects)")"
	same "$1" 'prefetches end in one way each' "$(sum_of cnre_prefetches_issued_total)" "$(calculate "$(sum_of cnre_prefetches_used_total) + $(sum_of cnre_prefetches_late_total) + $(sum_of cnre_prefetches_wasted_total) + $(sum_of cnre_prefetches_failed_total) + $(sum_of cnre_prefetches_unused)")"
	same "$1" 'looked-up bytes of clients = all' "$(sum_of cnre_client_looked_up_bytes_total)" "$(sum_of cnre_looked_up_bytes_total)"
	same "$1" 'hits + misses of layers = their accesses' "$(calculate "$(sum_of cnre_layer_hits_total) + $(sum_of cnre_layer_misses_total)")" "$(sum_of cnre_layer_accesses_total)"
	same "$1" 'residents of models = all' "$(sum_of cnre_model_resident_experts)" "$(sum_of cnre_resident_objects)"
}

# Numbers are up to half a second old: the engines' last ones come. They counted by themselves.
for ((try = 0; try < 40; try++)); do
	scrape_tcp || stop "no scrape: $(cat "$work/curl.log")"
	[ "$(awk "BEGIN {print ($(sum_of cnre_accesses_total) == $hits + $misses && $(sum_of cnre_loads_in_flight) == 0)}")" = 0 ] || break
	sleep 0.25
done
same engines 'accesses = what the engines counted' "$(sum_of cnre_accesses_total)" $((hits + misses))
check_identities 'after engines'
same layers 'accesses of layers = all' "$(sum_of cnre_layer_accesses_total)" "$(sum_of cnre_accesses_total)"
same layers 'misses of layers = all' "$(sum_of cnre_layer_misses_total)" "$(sum_of cnre_misses_total)"
same layers 'felt wait of layers = all' "$(sum_of cnre_layer_felt_wait_seconds_total)" "$(sum_of cnre_felt_wait_seconds_total)"
same layers 'bytes read for layers = all' "$(sum_of cnre_layer_read_bytes_total)" "$(sum_of cnre_read_bytes_total)"
same layers 'evictions of layers = all' "$(sum_of cnre_layer_evictions_total)" "$(sum_of cnre_evictions_total)"
same drives 'times of reads = reads' "$(sum_of cnre_drive_read_time_seconds_count)" "$(sum_of cnre_drive_reads_total)"
same drives 'sum of times' "$(sum_of cnre_drive_read_time_seconds_sum)" "$(sum_of cnre_drive_read_seconds_total)"
same reuse 'distances + first uses = accesses' "$(calculate "$(sum_of cnre_model_reuse_distance_experts_count) + $(sum_of cnre_model_first_uses_total)")" "$(sum_of cnre_accesses_total)"
same layers 'loads of layers = all' "$(sum_of cnre_layer_loads_total)" "$(sum_of cnre_loads_total)"
same histogram 'count = loads' "$(sum_of cnre_load_service_seconds_count)" "$(sum_of cnre_loads_total)"
same histogram 'sum = service time' "$(sum_of cnre_load_service_seconds_sum)" "$(sum_of cnre_service_seconds_total)"
[ "$(sum_of cnre_evictions_total)" != 0.000000000 ] || failed 'nothing was evicted: the test shows less than it should'
[ "$(sum_of cnre_visit_felt_wait_seconds_count)" != 0.000000000 ] || failed 'no visit that waited was counted'
promtool check metrics <"$work/scrape" >"$work/out" 2>&1 || failed "promtool check metrics: $(cat "$work/out")"
[ ! -s "$work/out" ] || failed "promtool check metrics says: $(cat "$work/out")"

# Each counter of the table, by the name that follows from it, and by the type that Prometheus asks for.
scrape_tcp -H 'Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5' -D "$work/headers" || failed 'no OpenMetrics'
grep -qi '^content-type: application/openmetrics-text; version=1.0.0; charset=utf-8' "$work/headers" || failed "type: $(cat "$work/headers")"
[ "$(tail -n 1 "$work/scrape")" = '# EOF' ] || failed 'OpenMetrics without its end'
awk '
	$2 == "TYPE" {if ($3 in type) {print "twice: " $3; bad = 1} type[$3] = $4}
	$2 == "UNIT" && $3 !~ "_" $4 "$" {print "unit: " $0; bad = 1}
	/^[a-z]/ {if ($1 in seen) {print "twice: " $1; bad = 1} seen[$1]}
	END {exit bad}' "$work/scrape" >"$work/out" || failed "OpenMetrics: $(cat "$work/out")"
# What is not of the table stands in the families of the manual, with its type and its labels, and the other way round.
awk '$1 == "#" && $2 == "TYPE" {type[$3] = $4; next}
	/^cnre_/ {name = $1; sub(/[{].*/, "", name); if (!(name in type)) sub(/_(total|bucket|sum|count)$/, "", name)
		labels = ""; rest = $0; sub(/^[^{ ]*/, "", rest)
		while (match(rest, /[{,][a-z_]+="([^"\\]|\\.)*"/)) {label = substr(rest, RSTART + 1, RLENGTH - 1); sub(/=.*/, "", label)
			if (label != "le") labels = labels " " label; rest = substr(rest, RSTART + RLENGTH)}
		print name, type[name] labels}' "$work/scrape" | sort -u >"$work/all-families"
sed -n 's/^CNRE_COUNTER(\([a-z_0-9]*\), .*/\1/p' shm/counters.def | sed 's/^bytes_\(.*\)/\1_bytes/; s/_ns$/_seconds/; s/^/cnre_/' | sort >"$work/table"
awk 'NR == FNR {table[$1]; next} !($1 in table) || NF > 2' "$work/table" "$work/all-families" >"$work/families"
awk '/^= / {labels = $0; sub(/^= /, "", labels); sub(/;.*/, "", labels); gsub(/ *[(][^)]*[)]/, "", labels); gsub(/,/, "", labels); labels = labels == "none" ? "" : " " labels; next}
	!/^#/ {print $1, $2 labels}' doc/counters.families | sort >"$work/documented"
[ ${#gpu[@]} -gt 0 ] || sed -i '/^cnre_vram_device_/d' "$work/documented"
diff "$work/families" "$work/documented" >"$work/out" || failed "doc/counters.families is not what is scraped (<): $(cat "$work/out")"
[ "$(grep -c '^# HELP' "$work/scrape")" -gt "$(grep -c '^CNRE_COUNTER' shm/counters.def)" ] || failed 'fewer families than counters'

# ---- what is not answered, and who is slow ----
for request in '-X POST' '-X DELETE'; do
	# shellcheck disable=SC2086 # words
	[ "$(curl -s -o /dev/null -w '%{http_code}' --max-time 20 $request "http://127.0.0.1:$port/metrics")" = 405 ] || failed "$request is not refused"
done
[ "$(curl -s -o /dev/null -w '%{http_code}' --max-time 20 "http://127.0.0.1:$port/other")" = 404 ] || failed '/other is not refused'
slow=()
for ((i = 0; i < 12; i++)); do
	exec {fd}<>"/dev/tcp/127.0.0.1/$port" || break
	[ $((i % 2)) = 0 ] || printf 'GET /metrics HTTP/1.1\r\nHost: a\r\n' >&"$fd" # and never its end
	slow+=("$fd")
done
run_engines slow 1 --cache cnre --socket "$socket" || failed "under slow scrapers: $reason"
"$build/cnrectl" --socket "$socket" stats --json >/dev/null || failed 'no stats under slow scrapers'
scrape_tcp || failed "slow scrapers keep others away for good: $(cat "$work/curl.log")"
for fd in "${slow[@]}"; do
	exec {fd}>&-
done

# ---- a successor serves the same address, and its sums hold ----
await_successor()
{
	local try
	for ((try = 0; try < 100; try++)); do
		[ "$("$build/cnrectl" --socket "$socket" status --json 2>/dev/null | jq .epoch)" != 2 ] || return 0
		sleep 0.1
	done
	failed 'no successor serves'
}
kill -KILL "$("$build/cnrectl" --socket "$socket" status --json | jq .pid)"
await_successor
scrape_tcp --retry 20 --retry-connrefused --retry-delay 1 || failed "no scrape of the successor: $(cat "$work/curl.log")"
[ "$(sum_of cnre_read_before_restart_bytes)" != 0.000000000 ] || failed 'the successor does not know what was read before'
check_identities 'after a restart'

# ---- a real Prometheus ----
web=$(free_port)
cat >"$work/prometheus.yml" <<END
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [$(realpath tools/prometheus/cnre-alerts.yml)]
scrape_configs:
  - job_name: cnre
    static_configs: [{targets: ['127.0.0.1:$port']}]
END
promtool check config "$work/prometheus.yml" >"$work/out" 2>&1 || failed "promtool check config: $(cat "$work/out")"
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="127.0.0.1:$web" \
	--log.level=warn >"$work/prometheus.log" 2>&1 &
prometheus=$!
ask() { curl -sS --max-time 20 -G "http://127.0.0.1:$web/api/v1/$1" "${@:2}"; }
wait_for() # jq-filter path arguments...
{
	local try answer
	for ((try = 0; try < 120; try++)); do
		answer=$(ask "${@:2}" 2>/dev/null)
		if [ -n "$answer" ] && jq -e "$1" <<<"$answer" >/dev/null 2>&1; then # jq takes nothing for success
			return 0
		fi
		kill -0 "$prometheus" 2>/dev/null || break
		sleep 0.5
	done
	return 1
}
wait_for '.data.result[0].value[1] | tonumber >= 3' query --data-urlencode 'query=count_over_time(cnre_hits_total[1m])' ||
	stop "Prometheus does not scrape: $(ask targets | jq -c '.data.activeTargets[] | [.health, .lastError]') $(tail -n 3 "$work/prometheus.log")"
run_engines scraped 2 --cache cnre --socket "$socket" || failed "$reason"
wait_for '.data.result[0].value[1] == "1"' query --data-urlencode 'query=min_over_time(up{job="cnre"}[3s])' || failed 'scrapes failed'
[ -z "$(ask targets | jq -r '.data.activeTargets[].lastError')" ] || failed "Prometheus: $(ask targets | jq -r '.data.activeTargets[].lastError')"
answer=$(ask metadata)
jq -e '.data | .cnre_felt_wait_seconds[0].type == "counter" and .cnre_felt_wait_seconds[0].unit == "seconds" and .cnre_resident_bytes[0].unit == "bytes" and
	.cnre_load_service_seconds[0].type == "histogram" and .cnre_clients[0].type == "gauge"' <<<"${answer:-null}" >/dev/null || failed "types and units do not reach Prometheus: ${answer:0:300}"

queries=0
while IFS= read -r query; do
	# Its families come with a GPU only.
	[[ ${#gpu[@]} -gt 0 || $query != *cnre_vram_device_* ]] || continue
	query=${query//'$instance'/.*} query=${query//'$model'/.*} query=${query//'$__rate_interval'/30s}
	answer=$(ask query --data-urlencode "query=$query")
	jq -e '.status == "success" and (.data.result | length > 0)' <<<"${answer:-null}" >/dev/null || failed "the dashboard asks $query: ${answer:0:200}"
	queries=$((queries + 1))
done < <(jq -r '.panels[].targets[]?.expr' tools/grafana/cnre-dashboard.json)
[ $queries -ge 20 ] || failed "the dashboard has $queries queries"
[ "$(ask rules | jq '[.data.groups[].rules[] | select(.health != "ok" and .health != "unknown")] | length')" = 0 ] ||
	failed "rules: $(ask rules | jq -c '.data.groups[].rules[] | [.name, .health, .lastError]')"
for metric in $(ask label/__name__/values | jq -r '.data[] | select(startswith("cnre_"))'); do
	number=$(ask query --data-urlencode "query=count($metric)" | jq -r '.data.result[0].value[1]')
	[ "${number:-0}" -le 400 ] 2>/dev/null || failed "$metric has $number series"
done
kill "$prometheus"
wait "$prometheus" 2>/dev/null
prometheus=
stop_manager || failed "$reason"

# ---- a Unix socket ----
start_manager $((checkpoint_bytes / 2)) --metrics "unix:$work/metrics.sock" --socket-mode 0600 || stop "$reason"
scrape --unix-socket "$work/metrics.sock" http://manager/metrics || failed "no scrape by the Unix socket: $(cat "$work/curl.log")"
check_identities 'by the Unix socket'
[ "$(stat -c %a "$work/metrics.sock")" = 600 ] || failed "the socket has mode $(stat -c %a "$work/metrics.sock")"
# Its successor finds something else there: clients are served all the same, and status says what is missing.
rm "$work/metrics.sock" && : >"$work/metrics.sock"
kill -KILL "$("$build/cnrectl" --socket "$socket" status --json | jq .pid)"
await_successor
"$build/cnrectl" --socket "$socket" status --json | jq -r '.degraded[].what' | grep -q -- '^--metrics: ' || failed 'status does not say that there are no metrics'
run_engines without 1 --cache cnre --socket "$socket" || failed "without metrics: $reason"
stop_manager || failed "$reason"
rm "$work/metrics.sock"
start_manager $((checkpoint_bytes / 2)) --metrics "unix:$work/metrics.sock" --keeper no || stop "$reason"
# At a start it is refused, where clients have nothing to lose; the socket and its owner are left alone.
timeout 60 "$build/cnre-managerd" --model "$checkpoint" --socket "$work/other.sock" --metrics "unix:$work/metrics.sock" --keeper no >"$work/out" 2>&1
status=$?
[ $status = 1 ] && grep -q -- '--metrics: .*is served by another manager' "$work/out" || failed "a path that is taken: exit status $status: $(last_line "$work/out")"
stop_manager || failed "$reason"
[ ! -e "$work/metrics.sock" ] || failed 'the socket stayed behind'

[ $failures = 0 ] && echo "metrics: promtool agrees, identities hold, and Prometheus answers $queries queries of the dashboard"
exit $((failures > 0))
