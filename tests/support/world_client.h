/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a world's manager, in the test's own process. */
#ifndef CNRE_TESTS_SUPPORT_WORLD_CLIENT_H
#define CNRE_TESTS_SUPPORT_WORLD_CLIENT_H

#include "cnre/cnre.h"
#include "tests/support/world.h"

/*
 * Attaches, and fails the test where that fails. reserve_bytes 0: what the library takes by itself, which may be half of
 * the pool; something small where not the reservation but the residents are tested.
 */
struct cnre *world_attach(const struct world *world, uint64_t reserve_bytes);

/* A number that depends on every byte of all parts. */
uint64_t world_sum(const struct cnre_expert *expert);

#endif
