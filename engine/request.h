/* SPDX-License-Identifier: Apache-2.0 */
/* One line of the serving protocol (cnre-olmoe(1)), checked: what a request holds is within the bounds below. */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include "engine/message.h"

#include <stdint.h>

#define REQUEST_LINE_BYTES_MAX (1u << 20)
#define REQUEST_ID_BYTES 65               /* with its zero */

enum request_verb { REQUEST_GENERATE, REQUEST_APPEND, REQUEST_END, REQUEST_IDENTITY, REQUEST_QUIT };

struct request {
	enum request_verb verb;
	char id[REQUEST_ID_BYTES];        /* "" if the verb has none */
	uint32_t steps;
	uint32_t *tokens;                 /* the caller's buffer */
	uint32_t count;
};

struct request_bounds {
	uint32_t vocab, positions;        /* tokens and steps of a request fit positions */
	uint32_t *tokens;                 /* [positions]: where to put them */
};

/* Cuts line into words. Returns 0, or -EINVAL with what to do in message; *ret_request is set on success only. */
int request_parse(struct request *ret_request, char *line, const struct request_bounds *bounds,
		  char message[ENGINE_MESSAGE_BYTES]);

#endif
