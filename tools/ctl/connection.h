/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question to a manager and its answer, over the socket of shm/wire.h. Every wait is bounded: a stopped manager
 * costs the time-out and no more. Messages are for people: object, reason, what to do.
 */
#ifndef CNRE_TOOLS_CTL_CONNECTION_H
#define CNRE_TOOLS_CTL_CONNECTION_H

#include "tools/ctl/verb.h"

#include <stdint.h>

#define CONNECTION_TIMEOUT_NS (5 * 1000000000LL) /* per connect, and per question with its answer */

/*
 * connection_open - connect to the manager at a path
 *
 * Returns:  the socket (CLOEXEC), or -ENOENT, -ECONNREFUSED (nobody listens), -EACCES, -EPROTOTYPE (another kind of
 *           socket), -ETIMEDOUT (its backlog is full and stays so), -ENAMETOOLONG, …
 */
int connection_open(const char *path);

#define CONNECTION_ADVICE_BYTES 192

/* What a failure of connection_open(path) means and what to do, one phrase; asks the path's owner, group and kind. */
void connection_advice(const char *path, int error, char ret_text[CONNECTION_ADVICE_BYTES]);

struct connection_question {
	const char *text;                 /* JSON */
	size_t bytes;
	const int *file;                  /* a descriptor that goes with it; NULL: none */
	int stop_fd;                      /* readable: give up with -EINTR; -1: none */
	int64_t timeout_ns;
};

/*
 * connection_ask - send one question, return the text of the answer
 *
 * @ret_text     allocated, not terminated; set on success only
 * @message      set on failure
 *
 * Returns:  0; the manager's own refusal (-errno with its words in message); -ETIMEDOUT, -EPIPE or -ECONNRESET (the
 *           manager has gone), -EBADMSG (not an answer), -EPROTO (another layout version), -E2BIG, -EINTR.
 */
int connection_ask(int connected, const struct connection_question *question, char **ret_text, size_t *ret_bytes,
		   char message[CTL_MESSAGE_BYTES]);

#endif
