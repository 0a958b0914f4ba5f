/* SPDX-License-Identifier: Apache-2.0 */
/* The SLRU policy: how objects rise and sink through the segments. */
#include "tests/support/replay.h"

#include <criterion/criterion.h>

/* 8 slots, 4 segments of 2, filled from the lowest: 0 1, 2 3, 4 5, 6 7. */
Test(policy_slru, newcomers_enter_the_lowest_segment_with_room)
{
	struct policy *policy = replay_open("slru", 2, POLICY_POOL_GLOBAL, 8);

	replay_add(policy, 0, 8);
	EXPECT_VICTIMS(policy, 8, 0, 1, 2, 3, 4, 5, 6, 7);
	policy_remove(policy, 3);
	policy_add(policy, 8);
	EXPECT_VICTIMS(policy, 9, 0, 1, 2, 8, 4, 5, 6, 7);
	policy_destroy(policy);
}

Test(policy_slru, a_use_moves_one_segment_up_and_pushes_the_oldest_there_down)
{
	struct policy *policy = replay_open("slru", 2, POLICY_POOL_GLOBAL, 8);

	replay_add(policy, 0, 8);
	policy_access(policy, 0); /* now 1 2, 3 0, ... */
	EXPECT_VICTIMS(policy, 8, 1, 2, 3, 0, 4, 5, 6, 7);
	policy_access(policy, 0); /* and 1 2, 3 4, 5 0, ... */
	EXPECT_VICTIMS(policy, 8, 1, 2, 3, 4, 5, 0, 6, 7);
	policy_access(policy, 6); /* the highest: it becomes the newest there */
	EXPECT_VICTIMS(policy, 8, 1, 2, 3, 4, 5, 0, 7, 6);
	policy_destroy(policy);
}

Test(policy_slru, what_has_room_nowhere_waits_in_the_lowest)
{
	struct policy *policy = replay_open("slru", 2, POLICY_POOL_GLOBAL, 4);

	replay_add(policy, 0, 6);
	EXPECT_VICTIMS(policy, 8, 0, 4, 5, 1, 2, 3);
	policy_destroy(policy);
}

Test(policy_slru, segments_shrink_and_grow_with_the_budget)
{
	struct policy *policy = replay_open("slru", 2, POLICY_POOL_GLOBAL, 8);

	replay_add(policy, 0, 8);
	policy_set_budget(policy, 4); /* all but the newest of each segment sink: 0 to 4, 5, 6, 7 */
	EXPECT_VICTIMS(policy, 8, 0, 1, 2, 3, 4, 5, 6, 7);
	policy_access(policy, 0);
	EXPECT_VICTIMS(policy, 8, 1, 2, 3, 4, 5, 0, 6, 7);
	policy_set_budget(policy, 8);
	policy_access(policy, 1); /* now it pushes nothing down */
	EXPECT_VICTIMS(policy, 8, 2, 3, 4, 5, 0, 1, 6, 7);
	policy_destroy(policy);
}

/* 10 slots at 3 : 1 : 1 are 6, 2 and 2. */
Test(policy_slru, the_split_can_be_another)
{
	struct replay_world world;
	struct policy_tuning tuning;
	struct policy_setup setup = {.object_count = 16, .layer_count = 2, .budget_bytes = 10, .tuning = &tuning};
	struct policy *policy = NULL;

	policy_tuning_default(&tuning);
	tuning.slru_segments = 3;
	tuning.slru_split[0] = 3;
	tuning.slru_split[1] = tuning.slru_split[2] = 1;
	replay_world_open(&world, 2, 8);
	setup.layer_of = world.layer_of;
	setup.bytes_of = world.bytes_of;
	cr_assert_eq(policy_create(&policy, "slru", &setup), 0);
	replay_add(policy, 0, 10);
	policy_access(policy, 5);
	policy_access(policy, 9);
	EXPECT_VICTIMS(policy, 10, 0, 1, 2, 3, 4, 6, 7, 5, 8, 9);
	policy_access(policy, 7);
	EXPECT_VICTIMS(policy, 10, 0, 1, 2, 3, 4, 6, 5, 8, 9, 7);
	policy_destroy(policy);
	replay_world_close(&world);
}

Test(policy_slru, segments_of_a_soft_pool_share_the_budget_and_not_the_ceilings)
{
	struct policy *policy = replay_open("slru", 2, POLICY_POOL_SOFT, 8); /* 4 a layer: segments of 1 */

	replay_add(policy, 0, 3);
	EXPECT_VICTIMS(policy, 8, 0, 1, 2);
	policy_access(policy, 0);
	EXPECT_VICTIMS(policy, 8, 1, 0, 2);
	policy_destroy(policy);
}

Test(policy_slru, layers_merge_by_segment_first)
{
	struct policy *policy = replay_open("slru", 2, POLICY_POOL_SOFT, 8);

	policy_visit(policy, 0, 1);
	replay_add(policy, 0, 2);
	for (int i = 0; i < 5; i++)
		policy_visit(policy, 0, 1);
	policy_visit(policy, 1, 1);
	replay_add(policy, 8, 10);
	EXPECT_VICTIMS(policy, POLICY_NONE, 0, 8, 1, 9);
	policy_destroy(policy);
}
