/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of cnre-route. Strings point into argv. */
#ifndef TOOLS_ROUTE_OPTIONS_H
#define TOOLS_ROUTE_OPTIONS_H

#include <stdint.h>

#define ROUTE_MESSAGE_BYTES 512
#define ROUTE_ENGINES_MAX 16u
#define ROUTE_NAME_BYTES 32               /* of a client, with its zero (shm/layout.h has as many) */

struct route_place {                      /* NAME=SOCKET */
	char name[ROUTE_NAME_BYTES];
	const char *socket;
};

struct route_options {
	const char *model, *socket, *kv_namespace, *salt;  /* NULL: not given */
	struct route_place place[ROUTE_ENGINES_MAX];
	uint32_t place_count;
	int help, version;
};

/* Returns 0, or -EINVAL with the reason in message; *ret_options is set on success only. */
int route_options_parse(struct route_options *ret_options, int argc, char **argv, char message[ROUTE_MESSAGE_BYTES]);
const char *route_options_help(void);

#endif
