/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end of a Unix socket: credentials from the kernel and a pidfd, never a number reopened later (R11). */
#ifndef CNRE_MANAGER_PEER_H
#define CNRE_MANAGER_PEER_H

#include "manager/survey.h"

#include <stdint.h>
#include <sys/types.h>

struct peer {
	int socket;
	int pidfd;                        /* -1: none could be had; then hang-up is death */
	uid_t uid;
	gid_t gid;
	pid_t pid;                        /* for people only: 0 in another pid namespace */
	struct survey_question question;  /* one of this peer's (control.h); forgotten before the socket is closed */
};

/* Fills all but `socket` from it. 0 or -errno; -EMFILE and its like too, so that nobody lives without a pidfd because of them. */
int peer_identify(struct peer *peer);

/*
 * The pidfd of a peer that connected at connected_ns (CLOCK_MONOTONIC), perhaps long ago: only from the socket itself, or
 * by number if that process is older than the connection. 0, also without one (pidfd -1); or -errno as above.
 */
int peer_find_process(struct peer *peer, int64_t connected_ns);

/* 1: root, or the manager's own user: may change settings. */
int peer_may_administer(const struct peer *peer);

#endif
