/* SPDX-License-Identifier: Apache-2.0 */
/* See store.h: opening and closing. Apart from store.c, so that a test can put another store in its place. */
#include "tools/route/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ATTACH_TIMEOUT_NS (30 * INT64_C(1000000000))

static int fail(char *message, int error, const char *what)
{
	(void)snprintf(message, ROUTE_MESSAGE_BYTES, "%s: %s; requests go to the least busy engine", what,
		       strerror(-error));
	return error;
}

/* No manager is started: the engines' own runs, or there is none that has prefixes. */
int store_open(struct store *ret_store, const struct route_options *options, const char *identity,
	       char message[ROUTE_MESSAGE_BYTES])
{
	const struct cnre_options attach = {
		.size = sizeof attach,
		.socket = options->socket,
		.name = "cnre-route",
		.timeout_ns = ATTACH_TIMEOUT_NS,
		.flags = CNRE_NO_AUTOSTART | CNRE_NO_EXPERTS,
	};
	struct store store = {0};
	int error = cnre_attach(&store.client, options->model, &attach);

	if (error < 0)
		return fail(message, error, "cannot attach to the manager");
	error = store_open_prefixes(&store.kv, store.client, options, identity);
	if (error < 0) {
		cnre_detach(store.client);
		return fail(message, error, "the store of prefixes cannot be asked");
	}
	*ret_store = store;
	return 0;
}

void store_close(struct store *store)
{
	if (store->kv)
		cnre_kv_close(store->kv);
	if (store->client)
		cnre_detach(store->client);
	*store = (struct store){0};
}
