/* SPDX-License-Identifier: Apache-2.0 */
/* Which engine has which conversation. Of too many, the one begun first is forgotten, as engines do. */
#ifndef TOOLS_ROUTE_HOMES_H
#define TOOLS_ROUTE_HOMES_H

#include "tools/route/request.h"

#define HOMES_MAX 4096u

struct homes {
	struct {
		char id[ROUTE_ID_BYTES];  /* "": free */
		uint32_t engine;
	} home[HOMES_MAX];
	uint32_t next;                    /* to be used, or used again */
};

void homes_set(struct homes *homes, const char *id, uint32_t engine);

/* The engine, or -ENOENT. */
int homes_find(const struct homes *homes, const char *id);

#endif
