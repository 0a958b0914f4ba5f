/* SPDX-License-Identifier: Apache-2.0 */
/* What every client of a system test does, through the library: attach to the world's manager, and look at all bytes. */
#ifndef CNRE_TESTS_USER_H
#define CNRE_TESTS_USER_H

#include "cnre/cnre.h"
#include "tests/support/world.h"

#include <stdint.h>

/* Asserts that it is attached, within 20 s. */
struct cnre *user_attach(const struct world *world);

/* A number that depends on every byte of all parts. */
uint64_t user_sum(const struct cnre_expert *expert);

#endif
