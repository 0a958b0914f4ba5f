/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy replayed over lookups with access semantics: each is a request of its own; a hit is used, a miss takes the
 * place of the first victim. No leases, no time. Objects are of one byte, so budgets are counts of objects.
 */
#ifndef CNRE_TESTS_SUPPORT_REPLAY_H
#define CNRE_TESTS_SUPPORT_REPLAY_H

#include "policy/policy.h"

#include <stddef.h>
#include <stdint.h>

struct replay_world {
	uint32_t layers, experts;    /* of each layer: object = layer * experts + expert */
	uint32_t *layer_of;
	uint64_t *bytes_of;
};

struct replay_lookup {
	uint32_t object;
	uint32_t begins_visit;       /* 1: of its layer */
};

void replay_world_open(struct replay_world *ret_world, uint32_t layers, uint32_t experts);
void replay_world_close(struct replay_world *world);

/* With the default tuning. The test fails where it cannot be made. */
struct policy *replay_policy(const struct replay_world *world, const char *name, enum policy_pool pool, uint32_t slots);

/* Misses. An object for which nobody may go is not placed. */
uint32_t replay_misses(const struct replay_world *world, struct policy *policy, uint32_t slots,
		       const struct replay_lookup *lookup, size_t count);

/* A policy of as many layers of 8; objects from first to before end added; one accessed so many times. */
struct policy *replay_open(const char *name, uint32_t layers, enum policy_pool pool, uint32_t slots);
void replay_add(struct policy *policy, uint32_t first, uint32_t end);
void replay_access(struct policy *policy, uint32_t object, unsigned times);

/* The whole order of victims for an object (POLICY_NONE: anybody's) is the one given, ended by POLICY_NONE. */
void replay_expect_victims(struct policy *policy, uint32_t object, const uint32_t *expected);
#define EXPECT_VICTIMS(policy, object, ...) replay_expect_victims(policy, object, (const uint32_t[]){__VA_ARGS__, POLICY_NONE})
#define EXPECT_NO_VICTIM(policy, object) replay_expect_victims(policy, object, (const uint32_t[]){POLICY_NONE})

#endif
