#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What tests/system/systemd.sh runs inside of the container, as a service of the systemd that is PID 1 there. Writes
# "ok WHAT" or "FAILED: WHAT" lines to /mnt/share/results and "done" at the end; the journal of the units beside it.
set -u
export LC_ALL=C SYSTEMD_COLORS=0 SYSTEMD_PAGER=
cd /mnt/share || exit 1
: >begun
: >results
unit=cnre-managerd.service socket=/run/cnre/managerd.sock model=/srv/cnre-model
wait_limit=200 # looks of 50 ms: 10 s, while RestartSec is 0.1 s

ok() { echo "ok $1" | tee -a results; }
failed() { echo "FAILED: $1" | tee -a results; }
check() # what command...
{
	local what=$1
	shift
	if "$@"; then ok "$what"; else failed "$what"; fi
}
same() { check "$1: $2" [ "$2" = "$3" ]; [ "$2" = "$3" ] || failed "    wanted $3"; }
close_squeeze() { :; } # pressure.sh has one
close_driver()
{
	close_squeeze
	journalctl --no-pager -o short-monotonic -u 'cnre-managerd*' >journal 2>&1
}
trap close_driver EXIT

property() { systemctl show "${2:-$unit}" -p "$1" --value; }
# Some things have no event: looks again, at most wait_limit times.
wait_for() # command...
{
	local i
	for ((i = 0; i < wait_limit; i++)); do
		"$@" && return 0
		sleep 0.05
	done
	return 1
}
number() { sed -n 's/.*"'"$1"'": *\(-\{0,1\}[0-9][0-9]*\).*/\1/p'; }
as_member() { setpriv --reuid nobody --regid nogroup --groups cnre "$@"; }
as_stranger() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }
stat_of() { cnrectl --socket $socket --json stats | number "$1"; }
epoch() { cnrectl --socket $socket --json status | number epoch; }

# ---- what an administrator does ----

mkdir -p /etc/cnre /etc/systemd/system/$unit.d
cat >/etc/cnre/managerd.conf <<CONF
model = $model
ram = 64M
verify = load
digests = /var/lib/cnre/digests
kv-ram = 16M
kv-dir = /var/lib/cnre/kv
metrics = unix:/run/cnre/metrics.sock
CONF
# As it is, but for the time in which a hang is noticed.
printf '[Service]\nWatchdogSec=2s\n' >/etc/systemd/system/$unit.d/test.conf
systemd-sysusers cnre.conf
systemd-tmpfiles --create cnre.conf
systemctl daemon-reload

# ---- socket activation ----

systemctl start cnre-managerd.socket
same 'not started before anybody comes' "$(property ActiveState)" inactive
as_stranger cnrectl --socket $socket status >/dev/null 2>&1 && failed 'who is not in the group can connect'
same 'not started by who may not connect' "$(property ActiveState)" inactive
check 'a member of the group starts it by connecting' as_member cnrectl --socket $socket status
same 'it said READY=1' "$(property ActiveState)" active
check "STATUS says what it serves: $(property StatusText)" grep -q 'serving 1 model' <<<"$(property StatusText)"
same 'its slice' "$(property Slice)" cnre.slice
check 'an engine of a member runs' as_member timeout 20 cnre-olmoe --model $model --tokens "95 28 14" --steps 8 --threads 1 --cache cnre --socket $socket
check "it left residents: $(stat_of resident_objects)" [ "$(stat_of resident_objects)" -gt 8 ]

# ---- metrics: a member reads them, without anything being given to the unit ----

scrape() { curl -sSf --max-time 10 -o scraped "$@" http://127.0.0.1:9847/metrics; }
if command -v curl >/dev/null; then
	check 'metrics by the socket of a confined manager' scrape --unix-socket /run/cnre/metrics.sock
	check 'and they are its own' grep -q "^cnre_resident_objects $(stat_of resident_objects)\$" scraped
	same 'who may read metrics' "$(stat -c %a:%G /run/cnre/metrics.sock)" 660:cnre
	as_stranger curl -s --max-time 10 --unix-socket /run/cnre/metrics.sock http://cnre/metrics >/dev/null && failed 'who is not in the group reads metrics'
else
	echo 'not checked: metrics, without curl' | tee -a results
fi

# shellcheck source=tests/system/systemd/prefixes.sh
. ./prefixes.sh
publish_prefix

# ---- confinement ----

manager=$(property MainPID)
status_line() { awk -v key="$1:" '$1 == key {print $2}' "/proc/$manager/status"; }
same 'capabilities' "$(status_line CapBnd)$(status_line CapEff)" 00000000000000000000000000000000
same 'no new privileges' "$(status_line NoNewPrivs)" 1
same 'system calls are filtered' "$(status_line Seccomp)" 2
# Where root has lost CAP_SYS_RESOURCE, systemd goes on without it.
if (echo -900 >/proc/self/oom_score_adj) 2>/dev/null; then
	same 'OOM score' "$(cat "/proc/$manager/oom_score_adj")" -900
else
	echo 'not checked: OOM score, which root may not lower here' | tee -a results
fi
same 'core files without shared memory' "$(cat "/proc/$manager/coredump_filter")" 00000001

# The same confinement around a program that tries: the installed unit with another program and another life.
installed=$(property FragmentPath)
sed -e 's|^ExecStart=.*|ExecStart=/mnt/share/confined /srv/writable /dev/cnre-test /var/lib/cnre '$model'/config.json|' \
	-e 's|^Type=.*|Type=oneshot|' -e '/^NotifyAccess=\|^Watchdog\|^Restart\|^Requires=\|^After=\|^Condition\|^Also=/d' \
	-e '/^\[Service\]/a StandardOutput=append:/mnt/share/confined.out' "$installed" >/run/systemd/system/cnre-confined.service
mkdir -m 0777 /srv/writable && touch /dev/cnre-test
systemctl daemon-reload
: >confined.out
systemctl start cnre-confined.service || journalctl --no-pager -u cnre-confined | tail -n 5
rm -f /srv/writable/confined-probe /var/lib/cnre/confined-probe
setpriv --reuid cnre --regid cnre --clear-groups ./confined /srv/writable /dev/cnre-test /var/lib/cnre $model/config.json >free.out
for what in write-elsewhere open-device writable-code data-to-code internet set-user-bit other-abi affinity others-in-proc; do
	check "refused, and only in the unit: $what" eval "grep -q '^$what refused' confined.out && grep -q '^$what allowed' free.out"
done
for what in own-state checkpoint unix-socket memfd io_uring futex_waitv meminfo; do
	check "allowed in the unit: $what" grep -q "^$what allowed" confined.out
done
cat confined.out free.out

# ---- what the residents live through, with a client attached all the time ----

mkfifo commands
attach_steady() # command...
{
	: >answers
	"$@" <commands >answers 2>&1 &
	steady=$!
	exec {to_client}>commands
	wait_for [ -s answers ]
	check "a client is attached: $(head -n 1 answers)" grep -q '^attached [1-9]' answers
}
detach_steady()
{
	exec {to_client}>&-
	wait $steady
}
attach_steady as_member ./steady $model $socket

# Sends a command and prints the answer that comes next.
answers_so_far() { wc -l <answers; }
has_answered() { [ "$(answers_so_far)" -gt "$1" ]; }
ask() # command
{
	local before
	before=$(answers_so_far)
	echo "$1" >&"$to_client"
	wait_for has_answered "$before" && tail -n 1 answers
}

is_another() { [ "$(property ActiveState)" = active ] && [ "$(property MainPID)" != "$1" ] && cnrectl --socket $socket status >/dev/null 2>&1; }
check_fresh() # what answer
{
	check "$1: a client's new miss is served: $2" grep -q '^fresh 0 ' <<<"$2"
}

survives() # what command...
{
	local what=$1 old before_objects before_loads before_epoch began answer
	shift
	old=$(property MainPID)
	before_objects=$(stat_of resident_objects) before_loads=$(stat_of loads) before_epoch=$(epoch)
	check "$what: something is resident before: $before_objects" [ "$before_objects" -gt 0 ]
	began=$(date +%s%N)
	"$@" "$old"
	wait_for is_another "$old" || { failed "$what: no new manager"; return; }
	ok "$what: a new manager serves after $((($(date +%s%N) - began) / 1000000)) ms"
	same "$what: residents" "$(stat_of resident_objects)" "$before_objects"
	same "$what: loads" "$(stat_of loads)" "$before_loads"
	same "$what: epoch" "$(epoch)" $((before_epoch + 1))
	check_fresh "$what" "$(ask fresh)"
	answer=$(ask report)
	check "$what: the attached client: $answer" grep -q '^calls [1-9][0-9]* failed 0 changed 0 ' <<<"$answer"
}
restart() { systemctl restart $unit; }
# The miss begins while the manager stands still, and waits for the next one.
hang_and_kill()
{
	local before
	before=$(answers_so_far)
	kill -STOP "$1"
	echo fresh >&"$to_client"
	wait_for is_another "$1"
	wait_for has_answered "$before"
	check_fresh 'a miss during a hang' "$(tail -n 1 answers)"
}
survives_hang()
{
	local old before_objects before_epoch answer
	old=$(property MainPID) before_objects=$(stat_of resident_objects) before_epoch=$(epoch)
	hang_and_kill "$old"
	check "hang: something is resident before: $before_objects" [ "$before_objects" -gt 0 ]
	check 'hang: a new manager serves' is_another "$old"
	check 'hang: the watchdog killed the old one with SIGKILL' eval "journalctl --no-pager -u $unit | grep -q 'Watchdog timeout' && journalctl --no-pager -u $unit | grep -qE 'Killing process $old .* with signal SIGKILL'"
	same 'hang: residents, and the one asked for' "$(stat_of resident_objects)" $((before_objects + 1))
	same 'hang: epoch' "$(epoch)" $((before_epoch + 1))
	answer=$(ask report)
	check "hang: the attached client: $answer" grep -q '^calls [1-9][0-9]* failed 0 changed 0 ' <<<"$answer"
}

# The first sign may be that of the start; a second one comes from the loop.
manager=$(property MainPID)
sign_after() { [ "$(property WatchdogTimestampMonotonic)" != "$1" ]; }
check 'a sign of life comes' wait_for sign_after "$(property WatchdogTimestampMonotonic)"
check 'and another' wait_for sign_after "$(property WatchdogTimestampMonotonic)"
same 'still the same manager' "$(property MainPID)" "$manager"
check "descriptors are stored: $(property NFileDescriptorStore)" [ "$(property NFileDescriptorStore)" -ge 8 ]
survives 'kill -9' kill -9
survives_hang
survives 'restart' restart
same 'restart: blocks of prefixes in memory' "$(stat_of kv_resident_blocks)" "$prefix_blocks"
finds_prefix restart
# An upgrade of systemd itself.
systemctl daemon-reexec
survives 'kill -9 after daemon-reexec' kill -9
same 'restarts that systemd counted' "$(property NRestarts)" 1

# ---- stop ----

systemctl stop $unit 2>/dev/null
same 'stop: the unit' "$(property ActiveState)/$(property Result)" inactive/success
same 'stop: stored descriptors' "$(property NFileDescriptorStore)" 0
check 'stop: the digests were written' [ -s /var/lib/cnre/digests ]
answer=$(ask fresh)
check "stop: a client's new miss is -EPIPE: $answer" grep -q '^fresh -32 ' <<<"$answer"
answer=$(ask report)
check "stop: what the client has is still right: $answer" grep -q ' changed 0 ' <<<"$answer"
check 'stop: the client ends' detach_steady
check 'stop: the next one starts it again' as_member cnrectl --socket $socket status
same 'stop: and it is empty' "$(stat_of resident_objects)" 0
same 'stop: no block of a prefix is in memory' "$(stat_of kv_resident_blocks)" 0
finds_prefix stop

# ---- a second instance ----

printf 'model = %s\nram = 32M\nmetrics = 127.0.0.1:9847\n' $model >/etc/cnre/second.conf
mkdir -p /etc/systemd/system/cnre-managerd@second.service.d # as cnre-managerd(8) says
printf '[Service]\nPrivateNetwork=no\nRestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\nIPAddressAllow=localhost\n' \
	>/etc/systemd/system/cnre-managerd@second.service.d/metrics.conf
systemctl daemon-reload
systemctl start cnre-managerd@second.socket
check 'a second instance starts by its own socket' as_member cnrectl --socket /run/cnre/second.sock status
! command -v curl >/dev/null || check 'metrics by loopback, with the drop-in' scrape
same 'the second instance' "$(property ActiveState cnre-managerd@second.service)" active
same 'its state' "$(stat -c %U:%a /var/lib/cnre/second)" cnre:700
check 'an engine uses the second one' as_member timeout 20 cnre-olmoe --model $model --tokens "95 28 14" --steps 2 --threads 1 --cache cnre --socket /run/cnre/second.sock
same 'the first one does not notice' "$(stat_of loads)" 0
systemctl stop cnre-managerd@second.socket
same 'stopping its socket stops it' "$(property ActiveState cnre-managerd@second.service)" inactive
systemctl start cnre-managerd@third.socket 2>/dev/null
same 'without a configuration nothing starts' "$(property ActiveState cnre-managerd@third.socket)" inactive

# shellcheck source=tests/system/systemd/pressure.sh
. ./pressure.sh
if compgen -G '/lib/*/security/pam_systemd.so' >/dev/null; then
	# shellcheck source=tests/system/systemd/logout.sh
	. ./logout.sh
else
	echo 'not checked: log-out, without libpam-systemd' | tee -a results
fi
echo 'done' >>results
