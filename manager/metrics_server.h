/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers scrapers over HTTP, in a thread of its own: GET /metrics and nothing else; nothing is changed by what they send.
 * Bounded in connections, in the time of each and in its memory, so one that sends or reads slowly costs its own place for
 * that time, and others at most the wait for a place.
 */
#ifndef CNRE_MANAGER_METRICS_SERVER_H
#define CNRE_MANAGER_METRICS_SERVER_H

#include <stddef.h>

#define METRICS_CONNECTIONS_MAX 8u
#define METRICS_CONNECTION_NS 5000000000ll /* of a connection, from its beginning to the last byte of the answer */
#define METRICS_CONNECTION_BYTES 16384u    /* of its request and headers */

struct metrics_server;

struct metrics_server_setup {
	int listen_fd;                    /* taken over on success */
	void *context;
	/*
	 * The text, with malloc; NULL: there is none in time. Called in the server's thread. stop_fd becomes readable when
	 * the thread is to end: then it waits for nothing any more.
	 */
	char *(*text)(void *context, int is_openmetrics, int stop_fd, size_t *ret_bytes);
};

/* 0, or -errno: -ELIBACC the library is not on this machine, -ELIBBAD or it is another one. */
int metrics_server_open(struct metrics_server **ret_server, const struct metrics_server_setup *setup);
/* Waits for the thread, which is making a text at most. NULL is fine. */
struct metrics_server *metrics_server_close(struct metrics_server *server);

#endif
