/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request line means: the conversations it touches and the line that answers it. Knows nothing of where lines come
 * from; serve.h does.
 */
#ifndef ENGINE_SERVER_H
#define ENGINE_SERVER_H

#include "engine/conversations.h"
#include "engine/request.h"

#include <stdbool.h>

struct server {
	struct forward *forward;          /* with room for positions */
	const char *name;                 /* NULL: none */
	struct conversations conversations;
	uint32_t *tokens;                 /* of the request being read */
};

struct server_bounds {
	uint32_t conversations;           /* that keep rows */
	uint32_t positions;               /* tokens of one */
};

/* store NULL: no prefixes are shared. Returns 0 or -ENOMEM. */
int server_init(struct server *server, struct forward *forward, const struct kv_store *store,
		const struct server_bounds *bounds);
void server_done(struct server *server);

/* The answer, to be freed; NULL: no memory for it. Sets *ret_quit if that was the request, and writes into line. */
char *server_answer(struct server *server, char *line, bool *ret_quit);

#endif
