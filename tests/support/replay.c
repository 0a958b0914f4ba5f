/* SPDX-License-Identifier: Apache-2.0 */
/* Replays lookups over a policy, and states what order its victims have. */
#include "tests/support/replay.h"

#include <criterion/criterion.h>
#include <stdlib.h>

void replay_world_open(struct replay_world *ret_world, uint32_t layers, uint32_t experts)
{
	struct replay_world world = {.layers = layers, .experts = experts};

	world.layer_of = calloc((size_t)layers * experts, sizeof *world.layer_of);
	world.bytes_of = calloc((size_t)layers * experts, sizeof *world.bytes_of);
	cr_assert(world.layer_of != NULL && world.bytes_of != NULL);
	for (uint32_t i = 0; i < layers * experts; i++) {
		world.layer_of[i] = i / experts;
		world.bytes_of[i] = 1;
	}
	*ret_world = world;
}

void replay_world_close(struct replay_world *world)
{
	free(world->layer_of);
	free(world->bytes_of);
}

struct policy *replay_policy(const struct replay_world *world, const char *name, enum policy_pool pool, uint32_t slots)
{
	struct policy_setup setup = {
		.object_count = world->layers * world->experts,
		.layer_count = world->layers,
		.layer_of = world->layer_of,
		.bytes_of = world->bytes_of,
		.budget_bytes = slots,
		.pool = pool,
	};
	struct policy *policy = NULL;

	cr_assert_eq(policy_create(&policy, name, &setup), 0);
	return policy;
}

static uint32_t place(struct policy *policy, uint32_t object, uint32_t slots, uint32_t resident)
{
	while (policy_must_replace(policy, object) || resident == slots) {
		uint32_t victim;

		policy_seek(policy, object);
		victim = policy_next(policy);
		if (victim == POLICY_NONE)
			return resident;
		policy_remove(policy, victim);
		resident--;
	}
	policy_add(policy, object);
	return resident + 1;
}

uint32_t replay_misses(const struct replay_world *world, struct policy *policy, uint32_t slots,
		       const struct replay_lookup *lookup, size_t count)
{
	uint32_t resident = 0, misses = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t object = lookup[i].object;

		if (lookup[i].begins_visit)
			policy_visit(policy, world->layer_of[object], 1);
		policy_access(policy, object);
		if (policy_is_resident(policy, object))
			continue;
		misses++;
		resident = place(policy, object, slots, resident);
	}
	return misses;
}

struct policy *replay_open(const char *name, uint32_t layers, enum policy_pool pool, uint32_t slots)
{
	struct replay_world world;
	struct policy *policy;

	replay_world_open(&world, layers, 8);
	policy = replay_policy(&world, name, pool, slots);
	replay_world_close(&world); /* a policy reads it during creation only */
	return policy;
}

void replay_add(struct policy *policy, uint32_t first, uint32_t end)
{
	for (uint32_t object = first; object < end; object++)
		policy_add(policy, object);
}

void replay_access(struct policy *policy, uint32_t object, unsigned times)
{
	while (times-- > 0)
		policy_access(policy, object);
}

void replay_expect_victims(struct policy *policy, uint32_t object, const uint32_t *expected)
{
	policy_seek(policy, object);
	for (unsigned i = 0;; i++) {
		uint32_t victim = policy_next(policy);

		cr_assert_eq(victim, expected[i], "victim %u is %u, not %u", i, victim, expected[i]);
		if (victim == POLICY_NONE)
			return;
	}
}
