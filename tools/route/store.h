/* SPDX-License-Identifier: Apache-2.0 */
/* The store of prefixes that the engines share, asked who holds what. Leases and copies nothing. */
#ifndef TOOLS_ROUTE_STORE_H
#define TOOLS_ROUTE_STORE_H

#include "cnre/cnre.h"
#include "tools/route/options.h"

struct store {
	struct cnre *client;
	struct cnre_kv *kv;
};

/*
 * Opens the store that an engine's identity line names (cnre-olmoe(1)). The line is input: -EPROTO if it is none.
 * Otherwise an error of cnre_attach or cnre_kv_open; message says what follows from it.
 */
int store_open(struct store *ret_store, const struct route_options *options, const char *identity,
	       char message[ROUTE_MESSAGE_BYTES]);
void store_close(struct store *store);

/* cnre_kv_open alone, from the line; for store_open, and for tests without a manager. */
int store_open_prefixes(struct cnre_kv **ret_kv, struct cnre *client, const struct route_options *options,
			const char *identity);

/* Whether an engine of that name may be among those of the first one's identity: 0, or -EINVAL with the reason. */
int store_check_identity(const char *first, const char *identity, const char *name, char message[ROUTE_MESSAGE_BYTES]);

/* Who holds most of the tokens; 1, or 0: nobody is known to hold any. */
int store_ask(const struct store *store, const int32_t *tokens, size_t count, char ret_name[ROUTE_NAME_BYTES]);

#endif
