/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving: request lines from standard input, or from connections to a Unix socket, answered one at a time in the order
 * in which they came. A connection has one request in the queue at most, so one that sends many waits its turn after
 * each. What it does not read is kept for it, one answer, while others are served.
 */
#ifndef ENGINE_SERVE_H
#define ENGINE_SERVE_H

#include "engine/server.h"

#define SERVE_CONNECTIONS_MAX 64u         /* more wait to be accepted */

/* A socket at path that only this user may connect to; a dead one's file there is replaced. *ret_fd on success only. */
int serve_listen(const char *path, int *ret_fd, char message[ENGINE_MESSAGE_BYTES]);

/*
 * Serves the connections of a listening socket, or, with -1, standard input, until quit, ^C or the end of standard
 * input. Returns 0, -EINTR after ^C, or an error that ended everything.
 */
int serve_run(struct server *server, int listener);

#endif
