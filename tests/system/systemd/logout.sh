# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # of driver.sh: unit, model, socket
# Sourced by driver.sh. With RemoveIPC=yes logind deletes all IPC objects of a login user when the last session ends, also
# those that a service of the same user lives on. Managers, keepers and clients have none: everything is a memfd.

mkdir -p /etc/systemd/logind.conf.d
printf '[Login]\nRemoveIPC=yes\nKillUserProcesses=no\nUserStopDelaySec=0\n' >/etc/systemd/logind.conf.d/test.conf
useradd --create-home --home-dir /srv/walker --uid 1500 walker
walker_socket=/srv/walker/cnre.sock
login() { systemd-run --quiet --wait --pipe -p User=walker -p PAMName=login "$@"; }
as_walker() { setpriv --reuid walker --regid walker --init-groups "$@"; }
walker_number() { cnrectl --socket "${2:-$walker_socket}" --json status | number "$1"; }
walker_is_gone() { ! loginctl show-user walker >/dev/null 2>&1; }
runs_at() { cnrectl --socket "$1" status >/dev/null 2>&1; }

# Of all users: what has a name in /dev/shm and /dev/mqueue, and System V objects; and that this is all.
named_ipc()
{
	find /dev/shm /dev/mqueue -mindepth 1 -printf '%u %p\n' &&
		awk 'FNR > 1 {print FILENAME, $0}' /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg && echo nothing else
}
# Kinds of what a process shares: memfd, anon_inode (rings), or a path.
shared_by() # pid
{
	awk '$2 ~ /s$/ {sub("^/memfd:.*", "memfd", $6); sub(":.*", "", $6); print $6}' "/proc/$1/maps" | sort -u | tr '\n' ' '
}

systemctl start systemd-logind
systemd-run --quiet --unit=walker-manager -p User=walker cnre-managerd --model "$model" --ram 64M --socket $walker_socket
wait_for runs_at $walker_socket
engine_of_walker() { as_walker timeout 20 cnre-olmoe --model "$model" --tokens "95 28 14" --steps 8 --threads 1 --cache cnre "$@"; }
check 'log-out: an engine of a login user runs' engine_of_walker --socket $walker_socket
attach_steady as_walker ./steady "$model" $walker_socket

walker_keeper=$(property MainPID walker-manager.service) walker_manager=$(walker_number pid)
check "log-out: the manager has a keeper: $walker_keeper" [ "$walker_keeper" != "$walker_manager" ]
same 'log-out: the manager shares' "$(shared_by "$walker_manager")" 'anon_inode memfd '
same 'log-out: its keeper shares nothing' "$(shared_by "$walker_keeper")" ''
same 'log-out: its client shares' "$(shared_by "$(pgrep -x steady)")" 'memfd '
same 'log-out: no IPC object exists' "$(named_ipc)" 'nothing else'
same 'log-out: nor in the namespace of the unit' "$(nsenter -t "$(property MainPID)" --ipc --mount bash -c "$(declare -f named_ipc); named_ipc")" 'nothing else'

# That logind does it is shown by objects that it takes away.
as_walker bash -c 'echo >/dev/shm/walker-control && ipcmk -M 4096 -S 1 -Q' >/dev/null
same 'log-out: control objects exist' "$(named_ipc | wc -l)" 5
before_objects=$(walker_number resident_objects)
same 'log-out: a session began' "$(login loginctl show-user walker -p State --value)" active
check 'log-out: and the user is gone' wait_for walker_is_gone
same 'log-out: logind removed the control objects' "$(named_ipc)" 'nothing else'

same 'log-out: the same manager serves' "$(walker_number pid)" "$walker_manager"
same 'log-out: residents' "$(walker_number resident_objects)" "$before_objects"
check_fresh 'log-out' "$(ask fresh)"
check 'log-out: a new client attaches' engine_of_walker --socket $walker_socket
kill -KILL "$walker_manager"
is_next_of_walker() { [ "$(walker_number epoch 2>/dev/null)" = 2 ]; }
check 'log-out: a successor adopts what is there' wait_for is_next_of_walker
check "log-out: with its residents" [ "$(walker_number resident_objects)" -gt "$before_objects" ]
answer=$(ask report)
check "log-out: the attached client: $answer" grep -q '^calls [1-9][0-9]* failed 0 changed 0 ' <<<"$answer"
detach_steady
systemctl stop walker-manager

# ---- a manager that an engine starts on demand in a session ----

# shellcheck disable=SC2016 # expanded in the session
in_session='timeout 20 cnre-olmoe --model '$model' --tokens "95 28 14" --steps 2 --threads 1 --cache cnre >&2 && cnrectl --json status'
first=$(login bash -c "$in_session" | number pid)
check "on demand: a session starts a manager: $first" [ "${first:-0}" -gt 1 ]
same 'on demand: that of the next session is the same' "$(login bash -c "$in_session" | number pid)" "$first"
kill "$first"
check 'on demand: the user is gone when it has ended' wait_for walker_is_gone

# ---- a user who lingers ----

is_not_there() { ! kill -0 "$1" 2>/dev/null; }
loginctl enable-linger walker
check 'lingering: a manager of the user starts' login systemd-run --user --quiet --unit=lingering cnre-managerd --model "$model" --ram 64M --socket /run/user/1500/lingering.sock
wait_for runs_at /run/user/1500/lingering.sock
lingers() { [ "$(loginctl show-user walker -p State --value)" = lingering ]; }
check 'lingering: the session has ended' wait_for lingers
first=$(walker_number pid /run/user/1500/lingering.sock)
check 'lingering: a client without a session attaches' engine_of_walker --socket /run/user/1500/lingering.sock
same 'lingering: and another session changes nothing' "$(login cnrectl --socket /run/user/1500/lingering.sock --json status | number pid)" "$first"
loginctl disable-linger walker
check 'lingering: without it the user and the manager are gone' wait_for walker_is_gone
check 'lingering: the manager, too' wait_for is_not_there "$first"
