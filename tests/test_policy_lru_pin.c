/* SPDX-License-Identifier: Apache-2.0 */
/* LRU with pins: the objects most used in the history stay, while anything else is left. */
#include "tests/support/replay.h"

#include <criterion/criterion.h>

static const uint32_t prior_of[] = {0, 5, 9, 5, 1, 0, 0, 0, /* layer 1: */ 0, 0, 0, 0, 0, 0, 7, 0};

static struct policy *open_pins(enum policy_pool pool, uint32_t slots, const uint32_t *prior)
{
	struct replay_world world;
	struct policy_setup setup = {.object_count = 16, .layer_count = 2, .budget_bytes = slots, .pool = pool, .prior_of = prior};
	struct policy *policy = NULL;

	replay_world_open(&world, 2, 8);
	setup.layer_of = world.layer_of;
	setup.bytes_of = world.bytes_of;
	cr_assert_eq(policy_create(&policy, "lru+pin", &setup), 0);
	replay_world_close(&world);
	return policy;
}

/* 6 slots: 3 pins, of 2 (9 uses), 14 (7) and of 1 and 3 (5 each) the lower. */
Test(policy_lru_pin, pinned_go_last_and_ties_pin_the_lower_object)
{
	struct policy *policy = open_pins(POLICY_POOL_GLOBAL, 6, prior_of);

	policy_add(policy, 14);
	replay_add(policy, 0, 5);
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 3, 4, 14, 1, 2);
	policy_access(policy, 14);
	policy_access(policy, 0);
	EXPECT_VICTIMS(policy, POLICY_NONE, 3, 4, 0, 1, 2, 14);
	policy_destroy(policy);
}

Test(policy_lru_pin, what_the_history_never_used_is_not_pinned)
{
	struct policy *policy = open_pins(POLICY_POOL_GLOBAL, 16, prior_of); /* 8 pins, and 5 that have uses */

	replay_add(policy, 4, 8);
	policy_access(policy, 5);
	EXPECT_VICTIMS(policy, POLICY_NONE, 6, 7, 5, 4);
	policy_destroy(policy);
}

Test(policy_lru_pin, pins_are_per_layer_where_orders_are)
{
	struct policy *policy = open_pins(POLICY_POOL_LAYER, 6, prior_of); /* 3 slots a layer, 1 pin: 2, and 14 */

	replay_add(policy, 1, 4);
	replay_add(policy, 13, 16);
	EXPECT_VICTIMS(policy, 0, 1, 3, 2);
	EXPECT_VICTIMS(policy, 12, 13, 15, 14);
	EXPECT_VICTIMS(policy, POLICY_NONE, 1, 3, 13, 15, 2, 14);
	policy_destroy(policy);
}

Test(policy_lru_pin, without_a_history_it_is_lru)
{
	struct policy *policy = open_pins(POLICY_POOL_GLOBAL, 8, NULL);

	replay_add(policy, 0, 5);
	policy_access(policy, 2);
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 1, 3, 4, 2);
	policy_destroy(policy);
}

/* Unpinned ones take the place that their last use gives them, not an end. */
Test(policy_lru_pin, pins_follow_the_budget)
{
	struct policy *policy = open_pins(POLICY_POOL_GLOBAL, 8, prior_of); /* 4 pins: 2, 14, 1, 3 */

	replay_add(policy, 0, 6);
	policy_access(policy, 4);
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 5, 4, 1, 2, 3);
	policy_set_budget(policy, 3); /* 1 pin: 2 */
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 1, 3, 5, 4, 2);
	policy_set_budget(policy, 10); /* 5 pins */
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 5, 1, 2, 3, 4);
	policy_remove(policy, 2);
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 5, 1, 3, 4);
	policy_destroy(policy);
}
