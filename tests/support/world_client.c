/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to a world's manager; see world_client.h. */
#include "tests/support/world_client.h"

#include <criterion/criterion.h>
#include <string.h>

#define ATTACH_TIMEOUT_NS 20000000000

struct cnre *world_attach(const struct world *world, uint64_t reserve_bytes)
{
	struct cnre_options options = {.size = sizeof options,
				       .socket = world->socket,
				       .timeout_ns = ATTACH_TIMEOUT_NS,
				       .reserve_bytes = reserve_bytes};
	struct cnre *client = NULL;
	int r = cnre_attach(&client, world->model, &options);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	return client;
}
