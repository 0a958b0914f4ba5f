/* SPDX-License-Identifier: Apache-2.0 */
/* The W-TinyLFU policy: the window, the contest at its end, and counts that forget. */
#include "tests/support/replay.h"

#include <criterion/criterion.h>

/* 20 slots: a window of 4, and 16 in the main part, of which 12 are protected. 0 to 15 are on probation, 16 to 19 in it. */
static struct policy *open_full(void)
{
	struct policy *policy = replay_open("tinylfu", 4, POLICY_POOL_GLOBAL, 20);

	replay_add(policy, 0, 20);
	return policy;
}

static void expect_first(struct policy *policy, uint32_t expected)
{
	uint32_t victim;

	policy_seek(policy, 31);
	victim = policy_next(policy);
	cr_assert_eq(victim, expected, "%u", victim);
}

Test(policy_tinylfu, of_equals_the_candidate_goes)
{
	struct policy *policy = open_full();

	EXPECT_VICTIMS(policy, 31, 16, 17, 18, 19, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	policy_access(policy, 0); /* 0 is protected now; 1 is as unused as the candidate */
	expect_first(policy, 16);
	policy_destroy(policy);
}

Test(policy_tinylfu, a_candidate_used_more_often_than_the_oldest_on_probation_takes_its_place)
{
	struct policy *policy = open_full();

	replay_access(policy, 16, 2); /* newest in the window: 17 is the candidate */
	replay_access(policy, 17, 2);
	replay_access(policy, 18, 2);
	replay_access(policy, 19, 2);
	expect_first(policy, 0);
	policy_remove(policy, 0);
	policy_add(policy, 31); /* pushes 16 out of the window, and 17 is the next candidate */
	EXPECT_VICTIMS(policy, 30, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 31, 16);
	policy_destroy(policy);
}

Test(policy_tinylfu, absent_objects_are_counted_too)
{
	struct policy *policy = open_full();

	replay_access(policy, 31, 3);
	cr_assert_eq(policy_worth(policy, 31), 3);
	policy_remove(policy, 16);
	policy_add(policy, 31);
	for (uint32_t i = 17; i < 20; i++)
		policy_remove(policy, i);
	for (uint32_t i = 17; i < 20; i++)
		policy_add(policy, i);
	expect_first(policy, 0); /* the candidate is 31 */
	policy_destroy(policy);
}

Test(policy_tinylfu, protected_ones_go_last_and_sink_when_they_are_too_many)
{
	struct policy *policy = open_full();

	for (uint32_t i = 0; i < 13; i++)
		policy_access(policy, i); /* the 13th pushes 0 back, behind 13 to 15 */
	EXPECT_VICTIMS(policy, 31, 16, 17, 18, 19, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
	policy_add(policy, 31); /* 16 leaves the window: it is younger on probation than 0, and goes before the protected */
	EXPECT_VICTIMS(policy, 30, 17, 18, 19, 31, 13, 14, 15, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
	policy_destroy(policy);
}

Test(policy_tinylfu, a_window_with_room_gives_nothing_before_the_main_part)
{
	struct policy *policy = open_full();

	policy_remove(policy, 18);
	EXPECT_VICTIMS(policy, 31, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19);
	policy_destroy(policy);
}

Test(policy_tinylfu, counts_are_halved_every_ten_accesses_a_slot)
{
	struct policy *policy = open_full();

	replay_access(policy, 31, 150);
	replay_access(policy, 30, 49);
	cr_assert_eq(policy_worth(policy, 31), 150);
	policy_access(policy, 30);
	cr_assert_eq(policy_worth(policy, 31), 75);
	cr_assert_eq(policy_worth(policy, 30), 25);
	replay_access(policy, 30, 199);
	cr_assert_eq(policy_worth(policy, 31), 75);
	policy_access(policy, 29);
	cr_assert_eq(policy_worth(policy, 31), 37);
	cr_assert_eq(policy_worth(policy, 29), 0);
	policy_destroy(policy);
}

Test(policy_tinylfu, layers_forget_on_their_own_where_orders_are_per_layer)
{
	struct policy *policy = replay_open("tinylfu", 2, POLICY_POOL_LAYER, 8);

	replay_access(policy, 0, 30);
	replay_access(policy, 8, 40); /* 4 slots: halved at the 40th */
	cr_assert_eq(policy_worth(policy, 0), 30);
	cr_assert_eq(policy_worth(policy, 8), 20);
	policy_destroy(policy);
}

Test(policy_tinylfu, parts_follow_the_budget)
{
	struct policy *policy = open_full();

	for (uint32_t i = 0; i < 12; i++)
		policy_access(policy, i);
	policy_set_budget(policy, 9); /* 4 in the window, 5 in main, 4 protected: 0 to 7 sink below 12 to 15 */
	EXPECT_VICTIMS(policy, 31, 16, 17, 18, 19, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
	policy_set_budget(policy, 30); /* a window of 6 has room */
	EXPECT_VICTIMS(policy, 31, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19);
	policy_destroy(policy);
}

Test(policy_tinylfu, few_slots_are_all_window)
{
	struct policy *policy = replay_open("tinylfu", 1, POLICY_POOL_GLOBAL, 3);

	replay_add(policy, 0, 3);
	policy_access(policy, 0);
	EXPECT_VICTIMS(policy, 7, 1, 2, 0);
	policy_destroy(policy);
}
