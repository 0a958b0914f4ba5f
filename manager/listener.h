/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager's socket: who owns its path (a lock held for life, R30), who may connect (mode and group), and new
 * connections until they say what they want. A connection that says HELLO becomes a session; one that says CONTROL is
 * answered and may ask again; silence is ended after a while, so that nobody can take all descriptors.
 */
#ifndef CNRE_MANAGER_LISTENER_H
#define CNRE_MANAGER_LISTENER_H

#include "manager/manager.h"

#define LISTENER_CONNECTIONS_MAX 256u
#define LISTENER_CONNECTIONS_PER_UID_MAX 64u     /* of a user who may not administer it (R27); more are closed at once */
#define LISTENER_SILENCE_NS (30 * 1000000000LL)  /* a connection that said nothing ends then */
#define LISTENER_PAUSE_NS (100 * 1000000LL)      /* no descriptor free: accept again then, instead of spinning */
#define LISTENER_PATH_CHECK_NS (10 * 1000000000LL)

struct listener_setup {
	const char *path;
	unsigned mode;                    /* of the socket: 0660 */
	const char *group;                /* NULL: leave it; must outlive the listener */
	int64_t idle_exit_ns;             /* 0: never */
};

/*
 * Takes the lock, then the path; or takes over a socket passed by the service manager (LISTEN_FDS).
 * Returns 0, -EBUSY (another manager holds the lock: message names its pid) or -errno; message says what to do.
 */
int listener_open(struct manager *manager, const struct listener_setup *setup, char message[256]);
void listener_close(struct manager *manager); /* unlinks the path if it is still ours */

/* The listening socket, and the lock file (-1: none), to store. */
void listener_descriptors(const struct manager *manager, int *ret_listen, int *ret_lock);
/* Tells a successor by the state segment what our path names, once the store has the socket that is bound there. */
void listener_note_path(struct manager *manager);

const char *listener_path(const struct manager *manager);

/* Time-outs, the path check and the idle exit. Call once per turn; sets manager->stopping when it is time to leave. */
void listener_tick(struct manager *manager, int64_t now_ns);
int64_t listener_deadline_ns(const struct manager *manager);

#endif
