/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As much of a request line as its way depends on. The line itself goes on unchanged: what is wrong with it, the engine
 * says.
 */
#ifndef TOOLS_ROUTE_REQUEST_H
#define TOOLS_ROUTE_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#define ROUTE_LINE_BYTES_MAX (1u << 20)   /* as engines take (cnre-olmoe(1)) */
#define ROUTE_TOKENS_MAX (ROUTE_LINE_BYTES_MAX / 2)
#define ROUTE_ID_BYTES 65                 /* with its zero */

enum route_verb {
	ROUTE_GENERATE,                   /* goes where its prefix is */
	ROUTE_CONTINUE,                   /* append, end: goes where the conversation is */
	ROUTE_QUIT,                       /* is ours */
	ROUTE_OTHER,                      /* any engine can say what it is */
};

struct route_request {
	enum route_verb verb;
	char id[ROUTE_ID_BYTES];          /* "": none that could be one */
	size_t token_count;
};

/* Tokens go to tokens, [ROUTE_TOKENS_MAX]; those behind one that is none are not counted. */
void route_request_read(struct route_request *ret_request, const char *line, int32_t *tokens);

#endif
