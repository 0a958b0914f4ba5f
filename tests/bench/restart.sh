#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# How long a client waits when the process behind its cache dies: from SIGKILL of the manager to the next cold acquire of
# a client that stays attached, and to the next hit. Beside it memcached's warm restart (-e on a tmpfs; SIGUSR1, since it
# does not survive SIGKILL; the same command again) to the next get of a key of the same size, with as many bytes held.
# The second that memcached needs between the two is left out. Both are started anew for each round (a keeper restarts a manager ten times a minute).
#
# ROUNDS (7).
cd "$(dirname "$0")/../.." || exit 1
ROUNDS=${ROUNDS:-7}
# shellcheck source=tests/bench/lib.sh
. tests/bench/lib.sh
steps=1
open_bench restart

command -v memcached >/dev/null || give_up 'memcached is not installed'
"$build/cnre-managerd" --help | grep -q -- --keeper || give_up 'this cnre-managerd has no keeper that starts it again'
build_program
make_checkpoint --layers 8 --experts 32 --top-k 8 --hidden 768 --intermediate 512 --vocab 512 --seed 1 --expert-format bf16 || give_up "$reason"
held=$(mktemp -d /dev/shm/cnre-bench-XXXXXX) || give_up 'no tmpfs at /dev/shm'
trap 'rm -rf "$held"; close_bench' EXIT

value_bytes=$((3 * 768 * 512 * 2))
for ((round = 0; round < rounds; round++)); do
	start_manager "$((checkpoint_bytes + checkpoint_bytes / 4))" || give_up "$reason"
	pid=$("$build/cnrectl" --socket "$socket" status --json | number pid)
	answer=$(timeout 60 "$program" cnre "$socket" "$checkpoint" "$pid" $((round + 1))) || give_up 'bench_restart cnre failed'
	[ "$("$build/cnrectl" --socket "$socket" status --json | number epoch)" = 2 ] || give_up 'the manager was not followed by one that took over'
	stop_manager || give_up "$reason"
	note cnre_cold_us "$(number cold_us <<<"$answer")"
	note cnre_hit_us "$(number hit_us <<<"$answer")"
	note cnre_cold_before_us "$(number cold_before_us <<<"$answer")"

	rm -f "$held"/*
	answer=$(timeout 60 "$program" memcached "$work/memcached.sock" "$held/memory" 512 $value_bytes 128) || give_up 'bench_restart memcached failed'
	note memcached_get_us "$(number get_us <<<"$answer")"
	note memcached_exit_us "$(number exit_us <<<"$answer")"
	rm -f "$held"/* "$work/memcached.sock"
done

printf 'experts and values of %d bytes, half of 256 experts and 128 values held\n' $value_bytes
printf '%-52s %s ms\n' 'cnre: SIGKILL to the next cold acquire' "$(show_spread cnre_cold_us 2 1000)" \
	'cnre: a cold acquire without it' "$(show_spread cnre_cold_before_us 2 1000)" \
	'cnre: SIGKILL to the next hit' "$(show_spread cnre_hit_us 4 1000)" \
	'memcached: SIGUSR1 to the next get' "$(show_spread memcached_get_us 2 1000)" \
	'memcached: of that until it has ended' "$(show_spread memcached_exit_us 2 1000)"
printf '%-52s %s\n' 'cnre cold acquire / memcached get' "$(calculate "$(median_of cnre_cold_us) / $(median_of memcached_get_us)")"
write_results
