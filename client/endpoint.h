/* SPDX-License-Identifier: Apache-2.0 */
/* Where a manager may be found: the given socket, $CNRE_SOCKET, the system's, or this user's own for one model. */
#ifndef CNRE_CLIENT_ENDPOINT_H
#define CNRE_CLIENT_ENDPOINT_H

#include <stdint.h>

#define CNRE_SYSTEM_SOCKET "/run/cnre/managerd.sock"
#define CNRE_ENDPOINT_PATH_MAX 108        /* sun_path */
#define CNRE_ENDPOINTS_MAX 2

struct cnre_endpoint {
	char path[CNRE_ENDPOINT_PATH_MAX];
	char log[CNRE_ENDPOINT_PATH_MAX]; /* of a manager started on demand */
	int may_start;                    /* the per-user one */
	int is_only;                      /* named by the caller: no other is tried */
};

/*
 * cnre_endpoint_list - the sockets to try, in order
 *
 * @socket    of the caller's options; may be NULL
 * @identity  of the model's directory; NULL: no per-user manager (it is named by the identity)
 *
 * Makes the per-user directory. Returns the number of endpoints, or -ECONNREFUSED ("none"), -EINVAL (@socket is longer
 * than a socket's path may be).
 */
int cnre_endpoint_list(const char *socket, const unsigned char *identity,
		       struct cnre_endpoint ret_endpoints[CNRE_ENDPOINTS_MAX]);

#endif
