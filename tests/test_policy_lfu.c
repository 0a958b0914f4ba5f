/* SPDX-License-Identifier: Apache-2.0 */
/* The LFU policy: counts of the time of residence, and recency among equals. */
#include "tests/support/replay.h"

#include <criterion/criterion.h>

Test(policy_lfu, least_used_go_first_and_of_equals_the_least_recently_touched)
{
	struct policy *policy = replay_open("lfu", 1, POLICY_POOL_GLOBAL, 8);

	replay_add(policy, 0, 5);
	policy_access(policy, 1);
	policy_access(policy, 0);
	replay_access(policy, 3, 2);
	EXPECT_VICTIMS(policy, POLICY_NONE, 2, 4, 1, 0, 3);
	policy_access(policy, 2); /* joins 1 and 0 as the newest */
	EXPECT_VICTIMS(policy, POLICY_NONE, 4, 1, 0, 2, 3);
	policy_destroy(policy);
}

Test(policy_lfu, counts_are_forgotten_with_residence)
{
	struct policy *policy = replay_open("lfu", 1, POLICY_POOL_GLOBAL, 8);

	replay_add(policy, 0, 3);
	replay_access(policy, 0, 5);
	policy_access(policy, 1);
	policy_remove(policy, 0);
	replay_access(policy, 0, 9); /* not resident: not counted */
	policy_add(policy, 0);
	EXPECT_VICTIMS(policy, POLICY_NONE, 2, 0, 1);
	policy_destroy(policy);
}

Test(policy_lfu, layers_merge_by_count_then_by_age_in_their_own_visits)
{
	struct policy *policy = replay_open("lfu", 2, POLICY_POOL_SOFT, 16);

	policy_visit(policy, 0, 1);
	policy_visit(policy, 1, 1);
	replay_add(policy, 0, 2);
	replay_add(policy, 8, 10);
	policy_access(policy, 0);
	EXPECT_VICTIMS(policy, 7, 8, 9, 1, 0); /* of equals those of layer 1, which ran last */
	policy_visit(policy, 0, 1);
	EXPECT_VICTIMS(policy, 7, 1, 8, 9, 0);
	policy_visit(policy, 1, 1);
	policy_visit(policy, 0, 1);
	policy_access(policy, 8);
	policy_access(policy, 0);
	policy_access(policy, 8);
	policy_visit(policy, 1, 1);
	policy_visit(policy, 0, 1);
	policy_access(policy, 1);
	policy_access(policy, 1);
	EXPECT_VICTIMS(policy, 7, 9, 0, 8, 1); /* the last three: used as often, 0 and 8 a visit ago, and layer 0 ran last */
	policy_destroy(policy);
}

/* No measure: else nothing that is absent, whose count is forgotten, would ever be preferred to a resident. */
Test(policy_lfu, prefers_anything_to_anything)
{
	struct policy *policy = replay_open("lfu", 1, POLICY_POOL_GLOBAL, 8);

	policy_add(policy, 0);
	replay_access(policy, 0, 9);
	cr_assert(policy_prefers(policy, 1, 0, 0.25f));
	cr_assert_eq(policy_worth(policy, 0), 0);
	policy_destroy(policy);
}
