/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to a world's manager, and all bytes of an expert; see world_client.h. */
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

uint64_t world_sum(const struct cnre_expert *expert)
{
	uint64_t sum = 0;

	for (int role = 0; role < CNRE_ROLES; role++)
		for (uint64_t i = 0; i < expert->part[role].bytes; i++)
			sum = sum * 31 + ((const unsigned char *)expert->part[role].data)[i];
	return sum;
}
