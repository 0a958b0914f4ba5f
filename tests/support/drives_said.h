/* SPDX-License-Identifier: Apache-2.0 */
/* What `cnrectl drives` says of a world's drives, each known by a directory that files of it lie in or below. */
#ifndef CNRE_TESTS_DRIVES_SAID_H
#define CNRE_TESTS_DRIVES_SAID_H

#include "tests/support/world.h"

#include <jansson.h>

/* All of it; the caller drops it with json_decref. Fails the test where there is no answer. */
json_t *drives_said(const struct world *world);
const json_t *drives_said_of(json_t *answer, const char *directory); /* NULL: the manager knows no such drive */

double drives_said_number(const struct world *world, const char *directory, const char *key); /* "errors.io" too */
int drives_said_state(const struct world *world, const char *directory, const char *state);
int drives_said_weights(const struct world *world, const char *weights); /* "measured", "declared", … */

/* Every byte that was read is some drive's, to the byte; what dead managers read is a number of its own. */
void drives_said_expect_sum(struct world *world);

#endif
