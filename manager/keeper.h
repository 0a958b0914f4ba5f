/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: a small process beside the manager where there is no systemd. It holds a duplicate of every descriptor the
 * manager must not lose and does nothing else until the manager dies; then it starts the next one with all of them
 * (LISTEN_FDS, as systemd does). Either of the two may be killed: the other starts it again (R31).
 *
 * It allocates nothing after its start, so that it lives on when memory is short, and reads nothing but its socket.
 */
#ifndef CNRE_MANAGER_KEEPER_H
#define CNRE_MANAGER_KEEPER_H

#define KEEPER_FAILED_STARTS_MAX 8u       /* in a row without READY: what keeps it from starting will not go away */
#define KEEPER_BACKOFF_NS (100 * 1000000LL)      /* after the first of them, and twice as long after each: 11 s in all, */
#define KEEPER_BACKOFF_MOST_NS (5 * 1000000000LL) /* up to this. One that served is followed at once */
#define KEEPER_RESTARTS_MAX 600u          /* within KEEPER_RESTARTS_NS: ten a second for a minute is no life */
#define KEEPER_RESTARTS_NS (60 * 1000000000LL)
#define KEEPER_FOR_ENVIRONMENT "CNRE_KEEPER_FOR"

/*
 * Becomes the keeper of a manager that it starts with the same arguments. Each of its managers gets listen_fd, the socket
 * that a supervisor without a descriptor store has passed (-1: none). Returns the exit status of the whole: the
 * manager's own when it ended by itself, 1 when it could not be kept alive.
 */
int keeper_run(char *const argv[], int listen_fd);

/*
 * 1 if this process was started by a manager whose keeper died (the environment says so); then it keeps that manager,
 * and *ret_status is its exit status.
 */
int keeper_run_for_manager(char *const argv[], int *ret_status);

/*
 * What a manager has of a keeper that it started itself. That one is not its parent and never learns its exit status, and
 * STOPPING=1 may be lost in a full socket; so there is a counter that both hold, and a graceful end adds to it.
 */
struct keeper_link {
	int socket;
	int sign;                         /* eventfd */
};

/* Manager: starts a new keeper for itself. 0 or -errno. */
int keeper_start(char *const argv[], struct keeper_link *ret_link);

#endif
