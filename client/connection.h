/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket to the manager: one request and its answer at a time (client/ask.c). It carries no expert and no hit. It
 * outlives a manager that is restarted; its end means that the manager is gone for good.
 *
 * The descriptor's number may stop being ours: a program that turns into a daemon closes every descriptor, and the
 * number soon names something else. So whatever reads, writes or closes it
 * first asks the kernel whether it is the socket that was connected.
 */
#ifndef CNRE_CLIENT_CONNECTION_H
#define CNRE_CLIENT_CONNECTION_H

#include "client/client.h"

/* Connects without waiting; CLOEXEC, non-blocking. 0, or -ENOENT, -ECONNREFUSED, -EACCES, -EAGAIN, … */
int cnre_connection_open(struct cnre *client, const char *path);

/* Closes it if it is still ours. */
void cnre_connection_close(struct cnre *client);

/* Whether the number still names our socket; one system call. Also in a forked child, before it may lock or allocate. */
int cnre_connection_is_ours(const struct cnre *client);

/* ---- one at a time ---- */

/* 0, or -ETIMEDOUT. Afterwards the socket, the buffer and the map of the pool are this thread's until unlock. */
int cnre_connection_lock(struct cnre *client, int64_t deadline_ns);
void cnre_connection_unlock(struct cnre *client);

/* ---- client/ask.c: lock held, or the client is not yet known to others ---- */

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
 * The request is sent again when the epoch changes while it waits. The answer has the type asked for, our id and at
 * least min_bytes; other messages are thrown away.
 * Returns:  0, or -ETIMEDOUT, -EPIPE (the manager hung up, or the descriptor is not ours any more), -EPROTO, -EBADMSG.
 *           No descriptor is left on failure.
 */
int cnre_connection_ask(struct cnre *client, void *message, size_t bytes, enum cnre_wire_type ask,
			enum cnre_wire_type answer, size_t min_bytes, int64_t deadline_ns,
			struct cnre_answer *ret_answer);

/* Sends without waiting, also not for an answer. 0, -ETIMEDOUT (no room), -EPIPE, … */
int cnre_connection_tell(struct cnre *client, void *message, size_t bytes, enum cnre_wire_type type);

/* Throws away what has come. */
void cnre_connection_drain(struct cnre *client);

void cnre_connection_close_fds(struct cnre_answer *answer);

/* ---- any thread ---- */

/*
 * Whether misses can still be served: 0, or -EPIPE after a hang-up (remembered). 0, too, when this process closed the
 * socket itself: requests go through the channel as before, but the end of the manager does not show any more.
 */
int cnre_connection_check(struct cnre *client);

/* A hang-up was seen before. */
static inline int cnre_connection_is_gone(const struct cnre *client)
{
	/* [N1] relaxed: a flag; what hits read stays mapped. */
	return atomic_load_explicit(&client->gone, memory_order_relaxed) != 0;
}

#endif
