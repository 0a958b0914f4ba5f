/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: who may give, who must, and what capacities follow from a budget. The policy is lru throughout. */
#include "tests/support/replay.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

TestSuite(policy_pool, .timeout = 60);

/* ---- equal capacities ---- */

Test(policy_pool, first_layers_get_what_equal_capacities_leave)
{
	struct replay_world world;
	struct policy_setup setup = {.object_count = 48 * 128, .layer_count = 48, .budget_bytes = 500};
	uint32_t capacity[48];
	uint64_t left = 77;

	replay_world_open(&world, 48, 128);
	setup.layer_of = world.layer_of;
	setup.bytes_of = world.bytes_of;
	cr_assert_eq(policy_equal_capacities(&setup, capacity, &left), 0);
	for (uint32_t i = 0; i < 48; i++)
		cr_assert_eq(capacity[i], i < 20 ? 11 : 10);
	cr_assert_eq(left, 0);
	replay_world_close(&world);
}

/* Layer 0: two objects of up to 3 bytes. Layer 1: four of 5. Layer 2: nothing. Layer 3: one of 2. */
static const uint32_t mixed_layer_of[] = {0, 0, 1, 1, 1, 1, 3};
static const uint64_t mixed_bytes_of[] = {1, 3, 5, 5, 5, 5, 2};

static struct policy_setup mixed(uint64_t budget_bytes)
{
	return (struct policy_setup){.object_count = 7, .layer_count = 4, .layer_of = mixed_layer_of,
				     .bytes_of = mixed_bytes_of, .budget_bytes = budget_bytes};
}

static void expect_mixed(uint64_t budget_bytes, const uint32_t expected[4], uint64_t expected_left)
{
	struct policy_setup setup = mixed(budget_bytes);
	uint32_t capacity[4];
	uint64_t left;

	cr_assert_eq(policy_equal_capacities(&setup, capacity, &left), 0);
	for (uint32_t i = 0; i < 4; i++)
		cr_assert_eq(capacity[i], expected[i], "budget %lu, layer %u: %u", budget_bytes, i, capacity[i]);
	cr_assert_eq(left, expected_left, "budget %lu leaves %lu", budget_bytes, left);
}

Test(policy_pool, layers_of_other_sizes_get_as_many_of_their_largest_objects)
{
	expect_mixed(0, (uint32_t[]){0, 0, 0, 0}, 0);
	expect_mixed(9, (uint32_t[]){1, 1, 0, 0}, 1); /* a row takes 10; what is left is given in order of the layers */
	expect_mixed(10, (uint32_t[]){1, 1, 0, 1}, 0);
	expect_mixed(14, (uint32_t[]){2, 1, 0, 1}, 1);
	expect_mixed(26, (uint32_t[]){2, 3, 0, 1}, 3); /* two rows, but for layer 3, and one more for layer 1 */
	expect_mixed(1000, (uint32_t[]){2, 4, 0, 1}, 972);
}

Test(policy_pool, capacities_of_an_impossible_setup_are_einval_and_outputs_untouched)
{
	struct policy_setup setup = mixed(10);
	uint32_t capacity[4] = {7, 7, 7, 7};
	uint64_t left = 7;

	setup.layer_count = 3;
	cr_assert_eq(policy_equal_capacities(&setup, capacity, &left), -EINVAL);
	setup = mixed(10);
	setup.object_count = 0;
	cr_assert_eq(policy_equal_capacities(&setup, capacity, &left), -EINVAL);
	cr_assert(capacity[0] == 7 && left == 7);
}

/* ---- who may give ---- */

#define EXPERTS 8u

/* Three layers of 8; `slots` are shared by them. Ceilings and capacities: NULL for those of the budget. */
static struct policy *open_pool(enum policy_pool pool, uint32_t slots, uint32_t floor, const uint32_t *capacity)
{
	struct replay_world world;
	struct policy_setup setup = {.object_count = 3 * EXPERTS, .layer_count = 3, .budget_bytes = slots, .pool = pool,
				     .floor_slots = floor, .capacity_of_layer = capacity};
	struct policy *policy = NULL;

	replay_world_open(&world, 3, EXPERTS);
	setup.layer_of = world.layer_of;
	setup.bytes_of = world.bytes_of;
	cr_assert_eq(policy_create(&policy, "lru", &setup), 0);
	replay_world_close(&world); /* it is read during creation only */
	return policy;
}

static void add_all(struct policy *policy, const uint32_t *object, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		policy_add(policy, object[i]);
}
#define ADD(policy, ...) \
	add_all(policy, (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

Test(policy_pool, in_a_global_pool_anybody_gives_and_nobody_must)
{
	struct policy *policy = open_pool(POLICY_POOL_GLOBAL, 3, 2, NULL);
	struct policy_layer layer;

	ADD(policy, 8, 0, 16, 1, 2, 3);
	cr_assert_not(policy_must_replace(policy, 4));
	EXPECT_VICTIMS(policy, 4, 8, 0, 16, 1, 2, 3);
	EXPECT_VICTIMS(policy, POLICY_NONE, 8, 0, 16, 1, 2, 3);
	policy_get_layer(policy, 0, &layer);
	cr_assert(layer.resident == 4 && layer.capacity == POLICY_NONE && layer.floor == 0);
	policy_destroy(policy);
}

Test(policy_pool, a_full_layer_replaces_its_own)
{
	struct policy *policy = open_pool(POLICY_POOL_LAYER, 6, 0, NULL);

	ADD(policy, 8, 1, 0, 16);
	cr_assert(policy_must_replace(policy, 2));
	cr_assert_not(policy_must_replace(policy, 9));
	EXPECT_VICTIMS(policy, 2, 1, 0);
	policy_destroy(policy);
}

Test(policy_pool, what_room_is_made_for_is_never_its_own_victim)
{
	struct policy *policy = open_pool(POLICY_POOL_GLOBAL, 6, 0, NULL);

	ADD(policy, 1, 8, 0);
	EXPECT_VICTIMS(policy, 1, 8, 0);
	EXPECT_VICTIMS(policy, 8, 1, 0);
	EXPECT_VICTIMS(policy, 0, 1, 8);
	policy_destroy(policy);
}

Test(policy_pool, a_layer_at_its_floor_gives_to_itself_and_to_a_shrinking_budget_alone)
{
	struct policy *policy = open_pool(POLICY_POOL_SOFT, 9, 2, NULL);

	policy_visit(policy, 0, 1);
	ADD(policy, 0, 1);
	policy_visit(policy, 1, 1);
	ADD(policy, 8, 9, 10);
	EXPECT_VICTIMS(policy, 16, 8, 9, 10); /* layer 0 has its floor of 2 and no more */
	EXPECT_VICTIMS(policy, 2, 8, 9, 10, 0, 1); /* equal ages: the layer that ran last first */
	EXPECT_VICTIMS(policy, 11, 8, 9, 10);
	EXPECT_VICTIMS(policy, POLICY_NONE, 8, 9, 10, 0, 1);
	policy_remove(policy, 8);
	EXPECT_NO_VICTIM(policy, 16);
	EXPECT_VICTIMS(policy, 11, 9, 10);
	policy_destroy(policy);
}

Test(policy_pool, a_layer_at_its_soft_ceiling_replaces_its_own)
{
	struct policy *policy = open_pool(POLICY_POOL_SOFT, 6, 0, NULL);
	struct policy_layer layer;

	policy_get_layer(policy, 0, &layer);
	cr_assert_eq(layer.capacity, 6); /* three times the share of 2 */
	ADD(policy, 8, 0, 1, 2, 3, 4);
	EXPECT_VICTIMS(policy, 5, 0, 1, 2, 3, 4, 8); /* no visit yet: equal ages, lower objects first */
	cr_assert_not(policy_must_replace(policy, 5));
	policy_add(policy, 5);
	cr_assert(policy_must_replace(policy, 6));
	EXPECT_VICTIMS(policy, 6, 0, 1, 2, 3, 4, 5);
	policy_destroy(policy);
}

Test(policy_pool, floors_are_not_above_the_equal_share_and_ceilings_not_above_what_a_layer_has)
{
	struct policy *policy = open_pool(POLICY_POOL_SOFT, 3, 5, NULL);
	struct policy_layer layer;

	policy_get_layer(policy, 1, &layer);
	cr_assert_eq(layer.floor, 1);
	cr_assert_eq(layer.capacity, 3);
	policy_set_budget(policy, 24);
	policy_get_layer(policy, 1, &layer);
	cr_assert_eq(layer.capacity, 8);
	policy_destroy(policy);
}

/* ---- at run time ---- */

static void expect_capacities(const struct policy *policy, uint32_t a, uint32_t b, uint32_t c)
{
	const uint32_t expected[] = {a, b, c};

	for (uint32_t i = 0; i < 3; i++) {
		struct policy_layer layer;

		policy_get_layer(policy, i, &layer);
		cr_assert_eq(layer.capacity, expected[i], "layer %u: %u", i, layer.capacity);
	}
}

Test(policy_pool, equal_capacities_follow_the_budget)
{
	struct policy *policy = open_pool(POLICY_POOL_LAYER, 7, 0, NULL);

	expect_capacities(policy, 3, 2, 2);
	policy_set_budget(policy, 12);
	expect_capacities(policy, 4, 4, 4);
	policy_set_budget(policy, 0);
	expect_capacities(policy, 0, 0, 0);
	policy_destroy(policy);
}

Test(policy_pool, capacities_given_by_hand_follow_the_budget_in_proportion)
{
	struct policy *policy = open_pool(POLICY_POOL_LAYER, 10, 0, (uint32_t[]){6, 3, 1});

	expect_capacities(policy, 6, 3, 1);
	policy_set_budget(policy, 5);
	expect_capacities(policy, 3, 1, 0);
	cr_assert_eq(policy_set_capacities(policy, (uint32_t[]){1, 2, 2}), 0); /* those are for a budget of 5 */
	expect_capacities(policy, 1, 2, 2);
	policy_set_budget(policy, 10);
	expect_capacities(policy, 2, 4, 4);
	policy_set_budget(policy, 100);
	expect_capacities(policy, 8, 8, 8);
	policy_destroy(policy);
}

Test(policy_pool, a_layer_that_shrank_must_replace_until_it_fits)
{
	struct policy *policy = open_pool(POLICY_POOL_LAYER, 9, 0, NULL);

	ADD(policy, 0, 1, 2);
	cr_assert_eq(policy_set_capacities(policy, (uint32_t[]){2, 3, 4}), 0);
	cr_assert(policy_must_replace(policy, 3));
	policy_remove(policy, 0);
	cr_assert(policy_must_replace(policy, 3));
	policy_remove(policy, 1);
	cr_assert_not(policy_must_replace(policy, 3));
	policy_destroy(policy);
}

Test(policy_pool, an_engines_own_list_has_layer_pools_only)
{
	struct replay_world world;
	struct policy_setup setup = {.object_count = 6, .layer_count = 2, .budget_bytes = 4};
	struct policy *policy = NULL;

	replay_world_open(&world, 2, 3);
	setup.layer_of = world.layer_of;
	setup.bytes_of = world.bytes_of;
	setup.pool = POLICY_POOL_GLOBAL;
	cr_assert_eq(policy_create(&policy, "engine-lru", &setup), -EINVAL);
	cr_assert_null(policy);
	setup.pool = POLICY_POOL_DEFAULT;
	cr_assert_eq(policy_create(&policy, "engine-lru", &setup), 0);
	cr_assert_eq(policy_pool_of(policy), POLICY_POOL_LAYER);
	policy_destroy(policy);
	replay_world_close(&world);
}

/*
 * Goal: ages are of the own layer. Method: every token visits 6 layers and asks each for the same 2 of 4 experts, in fewer
 * slots than a token needs. On one clock the oldest are always of the layer that runs next, and nothing is ever hit.
 */
Test(policy_pool, a_cycle_of_layers_larger_than_the_pool_hits_only_where_ages_are_of_the_own_layer)
{
	struct replay_world world;
	struct replay_lookup lookup[100 * 6 * 2];
	uint32_t count = 0, misses[2];

	replay_world_open(&world, 6, 4);
	for (uint32_t visit = 0; visit < 100 * 6; visit++)
		for (uint32_t k = 0; k < 2; k++)
			lookup[count++] = (struct replay_lookup){visit % 6 * 4 + k, k == 0};
	for (int soft = 0; soft < 2; soft++) {
		struct policy *policy = replay_policy(&world, "lru", soft ? POLICY_POOL_SOFT : POLICY_POOL_GLOBAL, 10);

		misses[soft] = replay_misses(&world, policy, 10, lookup, count);
		policy_destroy(policy);
	}
	cr_assert_eq(misses[0], count);
	cr_assert_leq(misses[1], count / 2, "%u of %u", misses[1], count);
	replay_world_close(&world);
}
