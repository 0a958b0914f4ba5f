/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of system tests; see user.h. */
#include "tests/support/user.h"

#include <criterion/criterion.h>
#include <string.h>

struct cnre *user_attach(const struct world *world)
{
	struct cnre_options options = {.size = sizeof options, .socket = world->socket, .timeout_ns = 20000000000};
	struct cnre *client = NULL;
	int r = cnre_attach(&client, world->model, &options);

	cr_assert_eq(r, 0, "attach: %s", strerror(-r));
	return client;
}

uint64_t user_sum(const struct cnre_expert *expert)
{
	uint64_t sum = 0;

	for (int role = 0; role < CNRE_ROLES; role++)
		for (uint64_t i = 0; i < expert->part[role].bytes; i++)
			sum = sum * 31 + ((const unsigned char *)expert->part[role].data)[i];
	return sum;
}
