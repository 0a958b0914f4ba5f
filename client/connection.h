/* SPDX-License-Identifier: Apache-2.0 */
/* The socket to the manager: one request and its answer at a time. It carries no expert and no hit. */
#ifndef CNRE_CLIENT_CONNECTION_H
#define CNRE_CLIENT_CONNECTION_H

#include "client/client.h"

/* Connects without waiting. The socket (CLOEXEC, non-blocking), or -ENOENT, -ECONNREFUSED, -EACCES, -EAGAIN, … */
int cnre_connection_open(const char *path);

struct cnre_answer {
	const void *message;              /* in client->buffer, until the next request */
	int fds[CNRE_WIRE_FDS_MAX];
	size_t fd_count;                  /* the caller closes them */
};

/*
 * cnre_connection_ask - send one request and wait for its answer
 *
 * @message  begins with a struct cnre_wire_header, which is filled here
 *
 * The answer has the type asked for, our id and at least min_bytes; answers to earlier requests that had timed out
 * are dropped. Control lock held, or the client is not yet known to others.
 * Returns:  0, or -ETIMEDOUT, -EPIPE (the manager hung up), -EPROTO, -EBADMSG. No descriptor is left on failure.
 */
int cnre_connection_ask(struct cnre *client, void *message, size_t bytes, enum cnre_wire_type ask,
			enum cnre_wire_type answer, size_t min_bytes, int64_t deadline_ns,
			struct cnre_answer *ret_answer);

void cnre_connection_close_fds(struct cnre_answer *answer);

/* Whether the manager is still there: 0, or -EPIPE after a hang-up (remembered). One system call at most. */
int cnre_connection_check(struct cnre *client);

/* A hang-up was seen before. */
static inline int cnre_connection_is_gone(const struct cnre *client)
{
	/* [N1] relaxed: a flag; what hits read stays mapped. */
	return atomic_load_explicit(&client->gone, memory_order_relaxed) != 0;
}

#endif
