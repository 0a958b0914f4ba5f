/* SPDX-License-Identifier: Apache-2.0 */
/* Where --metrics listens: a Unix socket, or a loopback address of this machine and no other. */
#ifndef CNRE_MANAGER_METRICS_ADDRESS_H
#define CNRE_MANAGER_METRICS_ADDRESS_H

#include <netinet/in.h>
#include <stddef.h>

struct metrics_address {
	const char *path;                 /* of a Unix socket, within the text; NULL: internet */
	struct sockaddr_storage internet;
	socklen_t internet_bytes;
};

/*
 * "unix:PATH", "127.0.0.1:PORT" (any of 127.0.0.0/8) or "[::1]:PORT"; no names, which may lead elsewhere tomorrow. 0, or
 * -EINVAL with what is wrong.
 */
int metrics_address_parse(const char *text, struct metrics_address *ret_address, char *message, size_t message_bytes);
/* A listening, non-blocking socket, or -errno. Not for a path: that is socket_path.h's. */
int metrics_address_listen(const struct metrics_address *address);

#endif
